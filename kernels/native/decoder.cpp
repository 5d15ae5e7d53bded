// A decoder as one MLX primitive: a pass from tokens to logits costs one operation.
#include "decoder.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <optional>
#include <tuple>

#include "array_rows.h"
#include "mlx/backend/cpu/encoder.h"
#include "projection_arrays.h"

namespace nb = nanobind;

namespace mtplx {
namespace {

struct LayerArrays {
  std::vector<ProjectionArrays> projections;  // query, key, value, output, gate, up, down
  mx::array input_norm, post_norm;
  std::optional<mx::array> query_norm, key_norm;

  void eval() {
    for (auto& projection : projections) projection.eval();
    mx::eval(input_norm, post_norm);
    if (query_norm) mx::eval(*query_norm, *key_norm);
  }

  DecoderLayer get() const {
    const auto& p = projections;
    const auto pointer = [](const std::optional<mx::array>& a) { return a ? a->data<float>() : nullptr; };
    return {p[0].get(), p[1].get(), p[2].get(), p[3].get(), p[4].get(), p[5].get(), p[6].get(),
            input_norm.data<float>(), post_norm.data<float>(), pointer(query_norm), pointer(key_norm)};
  }
};

struct EmbeddingArrays {
  mx::array words, scales, biases;
  int bits, group, size;

  EmbeddingTable get() const {
    return {words.data<uint32_t>(), scales.data<float>(), biases.data<float>(), bits, group, size};
  }
};

struct EntranceArrays {
  mx::array embedding_norm, hidden_norm;
  ProjectionArrays projection;

  void eval() {
    mx::eval(embedding_norm, hidden_norm);
    projection.eval();
  }

  DecoderEntrance get() const { return {embedding_norm.data<float>(), hidden_norm.data<float>(), projection.get()}; }
};

struct Stack {
  DecoderShape shape;
  std::optional<EmbeddingArrays> embedding;
  std::optional<EntranceArrays> entrance;
  std::vector<LayerArrays> layers;
  mx::array final_norm;
  std::optional<ProjectionArrays> head;
  mx::array inverse_frequencies;
  DecoderWeights weights;

  // Evaluates all arrays, and finds where their values lie.
  void settle() {
    mx::eval(final_norm, inverse_frequencies);
    weights.final_norm = final_norm.data<float>();
    weights.inverse_frequencies = inverse_frequencies.data<float>();
    if (embedding) {
      mx::eval(embedding->words, embedding->scales, embedding->biases);
      weights.embedding = embedding->get();
    }
    if (entrance) {
      entrance->eval();
      weights.entrance = entrance->get();
    }
    weights.equal_bits = true;
    for (auto& layer : layers) {
      layer.eval();
      weights.layers.push_back(layer.get());
      for (const auto& projection : layer.projections)
        weights.equal_bits = weights.equal_bits && projection.bits == layers[0].projections[0].bits;
    }
    if (head) {
      head->eval();
      weights.head = head->get();
    }
  }

  // Arrays that rows come in.
  size_t num_entering() const { return entrance ? 2 : 1; }
  int num_outputs() const { return head ? head->num_outputs : shape.hidden; }
};

// Rows `start` up to `stop` of the batch, at `position` and after in their sequence.
struct Rows {
  int64_t position;
  int start, stop;
};

// Keys and values of each layer in turn, [2 L, KV heads, capacity, head size], keys in tiles.
struct Buffer {
  void* data;
  int num_heads, capacity, size;
  bool is_half;

  explicit Buffer(mx::array& array)
      : data(array.data<void>()), num_heads(array.shape(1)), capacity(array.shape(2)), size(array.shape(3)),
        is_half(array.dtype() == mx::float16) {
    if (capacity % kTileKeys) throw std::invalid_argument("the room of a buffer must be for whole tiles of 16 rows");
    if (!is_half && array.dtype() != mx::float32) throw std::invalid_argument("a buffer is of float32 or float16");
  }
};

// What comes in: tokens [T] where there is an embedding, else embedded rows [T, D], and for an entrance hidden states
// [T, D] too.
struct Entering {
  int num_rows;
  const void* rows;
  const float* states;
};

template <typename Element>
Segments<Element> segments_of(const std::vector<Rows>& rows, const std::vector<Buffer>& buffers, size_t layer) {
  Segments<Element> segments;
  for (size_t i = 0; i < rows.size(); i++) {
    const Buffer& buffer = buffers[i];
    const int64_t size = int64_t(buffer.num_heads) * buffer.capacity * buffer.size;  // of all keys of a layer
    Element* const keys = static_cast<Element*>(buffer.data) + 2 * layer * size;
    segments.push_back({keys, keys + size, buffer.capacity, 0, rows[i].position, rows[i].start, rows[i].stop});
  }
  return segments;
}

// A pass, with the new rows put in their places in the buffers. To `out` go the logits of the wanted rows [R, V], or
// their hidden states [R, D]; to `hidden`, if it is given, the hidden states of all rows [T, D].
template <typename Element>
void decode_into(const Stack& stack, const std::vector<Rows>& rows, const std::vector<int>& wanted, int num_bytes,
                 const std::vector<Buffer>& buffers, const Entering& entering, float* out, float* hidden) {
  const size_t num_layers = stack.layers.size();
  std::vector<Segments<Element>> segments;
  for (size_t layer = 0; layer < num_layers; layer++) segments.push_back(segments_of<Element>(rows, buffers, layer));
  const int team_size = num_threads();
  DecoderPass<Element> pass(stack.shape, stack.weights, segments[0], entering.num_rows, wanted, num_bytes, team_size);
  run_on_team(team_size, [&](const Team& team) {
    if (stack.entrance)
      pass.take_pairs(static_cast<const int32_t*>(entering.rows), entering.states, team);
    else if (stack.embedding)
      pass.embed_rows(static_cast<const int32_t*>(entering.rows), team);
    else
      pass.take_rows(static_cast<const float*>(entering.rows), team);
    for (size_t layer = 0; layer < num_layers; layer++) pass.run(stack.weights.layers[layer], segments[layer], team);
    if (hidden) pass.norm_all(hidden, team);
    if (!wanted.empty()) pass.finish(out, team);
  });
}

// The same for buffers of either type.
void decode(const Stack& stack, const std::vector<Rows>& rows, const std::vector<int>& wanted, int num_bytes,
            const std::vector<Buffer>& buffers, const Entering& entering, float* out, float* hidden) {
  const bool are_half = !buffers.empty() && buffers[0].is_half;
  (are_half ? decode_into<float16> : decode_into<float>)(stack, rows, wanted, num_bytes, buffers, entering, out, hidden);
}

// Inputs what comes in, then a buffer for each segment. Outputs as `decode` has them, with the buffers in between: in
// the very same memory where nobody else holds it. Few arrays, for MLX lets each output of a primitive know all others.
class DecoderPrimitive : public CpuPrimitive {
 public:
  DecoderPrimitive(mx::Stream stream, std::shared_ptr<const Stack> stack, std::vector<Rows> rows,
                   std::vector<int> wanted, int num_bytes)
      : CpuPrimitive(stream), stack_(std::move(stack)), rows_(std::move(rows)), wanted_(std::move(wanted)),
        num_bytes_(num_bytes) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    // Each output holds the inputs, which therefore could never be donated. One hold on them is enough.
    for (auto& output : outputs)
      if (&output.inputs() != &inputs && !output.is_tracer()) output.inputs().clear();
    auto& encoder = mx::cpu::get_command_encoder(stream());
    outputs[0].set_data(mx::allocator::malloc(outputs[0].nbytes()));
    std::vector<std::tuple<mx::array, mx::array>> copies;  // place, source
    std::vector<Buffer> buffers;
    const size_t num_entering = stack_->num_entering(), num_buffers = inputs.size() - num_entering;
    float* hidden = nullptr;
    if (outputs.size() > 1 + num_buffers) {
      outputs.back().set_data(mx::allocator::malloc(outputs.back().nbytes()));
      hidden = outputs.back().data<float>();
    }
    for (size_t i = 0; i < num_buffers; i++) {
      const mx::array& given = inputs[num_entering + i];
      mx::array& updated = outputs[1 + i];
      if (!given.flags().row_contiguous) throw std::invalid_argument("a buffer does not lie in one piece");
      if (given.is_donatable()) {
        updated.copy_shared_buffer(given);
      } else {
        updated.set_data(mx::allocator::malloc(updated.nbytes()));
        copies.emplace_back(mx::array::unsafe_weak_copy(updated), mx::array::unsafe_weak_copy(given));
      }
      buffers.emplace_back(updated);
    }
    for (const auto& input : inputs) encoder.set_input_array(input);
    for (auto& output : outputs) encoder.set_output_array(output);
    const Entering entering{inputs[0].shape(0), inputs[0].data<void>(),
                            stack_->entrance ? inputs[1].data<float>() : nullptr};
    encoder.dispatch([stack = stack_, rows = rows_, wanted = wanted_, num_bytes = num_bytes_,
                      copies = std::move(copies), buffers = std::move(buffers), entering,
                      out = outputs[0].data<float>(), hidden]() mutable {
      for (auto& [place, source] : copies) std::memcpy(place.data<void>(), source.data<void>(), source.nbytes());
      decode(*stack, rows, wanted, num_bytes, buffers, entering, out, hidden);
    });
  }

  const char* name() const override { return "Decoder"; }

 private:
  std::shared_ptr<const Stack> stack_;
  std::vector<Rows> rows_;
  std::vector<int> wanted_;
  int num_bytes_;
};

using Bounds = std::vector<std::tuple<int64_t, int, int>>;
using HostStates = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using HostFloats = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

// Memory [rows, columns] that goes when the last array on it does.
HostFloats host_floats(size_t rows, size_t columns) {
  float* const memory = make_floats(rows * columns).release();
  nb::capsule owner(memory, [](void* p) noexcept { FreeAligned()(static_cast<float*>(p)); });
  return HostFloats(memory, {rows, columns}, owner);
}

class Decoder {
 public:
  Decoder(std::optional<EmbeddingArrays> embedding, std::optional<EntranceArrays> entrance,
          std::vector<LayerArrays> layers, const mx::array& final_norm, std::optional<ProjectionArrays> head,
          const mx::array& inverse_frequencies, int hidden, int intermediate, int num_heads, int num_kv_heads,
          int head_size, float scale, float eps, bool rope_in_pairs)
      : stack_(std::make_shared<Stack>(Stack{
            {hidden, intermediate, {num_heads, num_kv_heads, head_size, head_size, scale, 0.0f, 0},
             {head_size, int(inverse_frequencies.size()), rope_in_pairs}, eps},
            std::move(embedding), std::move(entrance), std::move(layers), final_norm, std::move(head),
            inverse_frequencies, {}})) {
    stack_->settle();
  }

  std::vector<mx::array> operator()(const mx::array& rows, const Bounds& bounds, std::vector<int> wanted,
                                    const std::vector<mx::array>& buffers, bool wants_hidden,
                                    const std::optional<mx::array>& states) const {
    check_states(states.has_value());
    check_alike(buffers);
    const auto stream = mx::default_stream(mx::Device::cpu);
    const auto laid_out = [&](const mx::array& array, mx::Dtype as) {
      return mx::contiguous(mx::astype(array, as, stream), false, stream);
    };
    std::vector<mx::array> inputs{laid_out(rows, stack_->embedding ? mx::int32 : mx::float32)};
    if (states) inputs.push_back(laid_out(*states, mx::float32));
    inputs.insert(inputs.end(), buffers.begin(), buffers.end());
    std::vector<mx::Shape> shapes{{int(wanted.size()), stack_->num_outputs()}};
    for (const auto& buffer : buffers) shapes.push_back(buffer.shape());
    if (wants_hidden) shapes.push_back({int(rows.shape(0)), stack_->shape.hidden});
    std::vector<mx::Dtype> types(shapes.size(), mx::float32);
    for (size_t i = 0; i < buffers.size(); i++) types[1 + i] = buffers[i].dtype();
    auto primitive = std::make_shared<DecoderPrimitive>(stream, stack_, rows_of(bounds), std::move(wanted),
                                                        input_bytes());
    return mx::array::make_arrays(std::move(shapes), types, std::move(primitive), inputs);
  }

  // The same at once, on the calling thread and in host memory; of tokens alone. Handing a pass over to MLX's thread and
  // waiting for it takes a good part of what a small one takes. Buffers that others hold, too, become copies in the list.
  std::tuple<HostFloats, std::optional<HostFloats>> now(const std::vector<int32_t>& tokens, const Bounds& bounds,
                                                        const std::vector<int>& wanted, nb::list buffers,
                                                        bool wants_hidden,
                                                        const std::optional<HostStates>& states) const {
    check_states(states.has_value());
    if (!stack_->embedding) throw std::invalid_argument("tokens are for a decoder with an embedding");
    check_alike(nb::cast<std::vector<mx::array>>(buffers));
    std::vector<Buffer> own;
    for (size_t i = 0; i < buffers.size(); i++) own.push_back(own_buffer(buffers, i));
    HostFloats out = host_floats(wanted.size(), stack_->num_outputs());
    std::optional<HostFloats> hidden;
    if (wants_hidden) hidden = host_floats(tokens.size(), stack_->shape.hidden);
    const Entering entering{int(tokens.size()), tokens.data(), states ? states->data() : nullptr};
    {
      nb::gil_scoped_release released;
      decode(*stack_, rows_of(bounds), wanted, input_bytes(), own, entering, out.data(),
             hidden ? hidden->data() : nullptr);
    }
    return {std::move(out), std::move(hidden)};
  }

 private:
  static void check_alike(const std::vector<mx::array>& buffers) {
    for (const auto& buffer : buffers)
      if (buffer.dtype() != buffers[0].dtype()) throw std::invalid_argument("buffers must be of one type");
  }

  void check_states(bool are_given) const {
    if (are_given != stack_->entrance.has_value())
      throw std::invalid_argument("hidden states are for an entrance, and an entrance takes them");
  }

  static std::vector<Rows> rows_of(const Bounds& bounds) {
    std::vector<Rows> rows;
    for (const auto& [position, start, stop] : bounds) rows.push_back({position, start, stop});
    return rows;
  }

  // Buffer i of the list, which may be written: nobody but the list holds it, or else it holds a copy from here on.
  static Buffer own_buffer(nb::list& buffers, size_t i) {
    nb::handle item = PyList_GET_ITEM(buffers.ptr(), i);
    mx::array& given = nb::cast<mx::array&>(item);
    given.eval();
    if (!given.flags().row_contiguous) throw std::invalid_argument("a buffer does not lie in one piece");
    if (given.is_donatable() && Py_REFCNT(item.ptr()) == 1) return Buffer(given);
    mx::array copy(mx::allocator::malloc(given.nbytes()), given.shape(), given.dtype());
    std::memcpy(copy.data<void>(), given.data<void>(), given.nbytes());
    buffers[i] = nb::cast(std::move(copy));
    return Buffer(nb::cast<mx::array&>(nb::handle(PyList_GET_ITEM(buffers.ptr(), i))));
  }

  std::shared_ptr<Stack> stack_;
};

}  // namespace

void bind_decoder(nb::module_& m) {
  nb::class_<ProjectionArrays>(m, "Projection")
      .def(nb::init<mx::array, mx::array, mx::array, int, int, int, std::optional<mx::array>>(), nb::arg("words"),
           nb::arg("scales"), nb::arg("biases"), nb::kw_only(), nb::arg("bits"), nb::arg("group_size"),
           nb::arg("num_outputs"), nb::arg("bias").none());
  nb::class_<LayerArrays>(m, "DecoderLayer")
      .def(nb::init<std::vector<ProjectionArrays>, mx::array, mx::array, std::optional<mx::array>,
                    std::optional<mx::array>>(),
           nb::arg("projections"), nb::kw_only(), nb::arg("input_norm"), nb::arg("post_norm"),
           nb::arg("query_norm").none(), nb::arg("key_norm").none());
  nb::class_<EmbeddingArrays>(m, "Embedding")
      .def(nb::init<mx::array, mx::array, mx::array, int, int, int>(), nb::arg("words"), nb::arg("scales"),
           nb::arg("biases"), nb::kw_only(), nb::arg("bits"), nb::arg("group_size"), nb::arg("size"));
  nb::class_<EntranceArrays>(m, "Entrance")
      .def(nb::init<mx::array, mx::array, ProjectionArrays>(), nb::kw_only(), nb::arg("embedding_norm"),
           nb::arg("hidden_norm"), nb::arg("projection"));
  nb::class_<Decoder>(m, "Decoder")
      .def(nb::init<std::optional<EmbeddingArrays>, std::optional<EntranceArrays>, std::vector<LayerArrays>,
                    const mx::array&, std::optional<ProjectionArrays>, const mx::array&, int, int, int, int, int, float,
                    float, bool>(),
           nb::kw_only(), nb::arg("embedding").none(), nb::arg("entrance").none(), nb::arg("layers"),
           nb::arg("final_norm"), nb::arg("head").none(), nb::arg("inverse_frequencies"), nb::arg("hidden"),
           nb::arg("intermediate"), nb::arg("num_heads"), nb::arg("num_kv_heads"), nb::arg("head_size"),
           nb::arg("scale"), nb::arg("eps"), nb::arg("rope_in_pairs"))
      .def("__call__", &Decoder::operator(), nb::arg("rows"), nb::arg("segments"), nb::arg("wanted"),
           nb::arg("buffers"), nb::arg("wants_hidden"), nb::arg("states").none())
      .def("now", &Decoder::now, nb::arg("tokens"), nb::arg("segments"), nb::arg("wanted"), nb::arg("buffers"),
           nb::arg("wants_hidden"), nb::arg("states").none());
}

}  // namespace mtplx
