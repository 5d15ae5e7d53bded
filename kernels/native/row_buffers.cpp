// Buffers of a decoder's rows: keys and values of each layer in turn, [2 L, H, capacity, D], keys in tiles, of float32 or
// float16. Knows how rows get in and out by themselves, as [2 L, H, n, D].
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <stdexcept>
#include <vector>

#include "huge_pages.h"
#include "key_tiles.h"
#include "mlx/allocator.h"
#include "mlx/mlx.h"
#include "parallel.h"

namespace nb = nanobind;
namespace mx = mlx::core;

namespace mtplx {
namespace {

// What one head holds of the keys, or of the values, of a layer.
struct Slab {
  int64_t index;
  bool has_keys;
};

mx::array new_array(mx::Shape shape, mx::Dtype type) {
  int64_t size = type.size();
  for (const int axis : shape) size *= axis;
  mx::array made(mx::allocator::malloc(size), std::move(shape), type);
  advise_huge_pages(made.data<void>(), made.nbytes());
  return made;
}

// Calls `visit` with a number of the size that an element has: its bits go from place to place as they are.
template <typename Visit>
void with_element(const mx::array& array, Visit visit) {
  if (array.dtype() == mx::float16)
    visit(uint16_t{});
  else
    visit(uint32_t{});
}

void check_buffer(const mx::array& buffer, int num_rows) {
  const bool is_float = buffer.dtype() == mx::float32 || buffer.dtype() == mx::float16;
  if (buffer.ndim() != 4 || !is_float || !buffer.flags().row_contiguous)
    throw std::invalid_argument("a buffer of rows has four axes, is of float32 or float16 and lies in one piece");
  if (buffer.shape(2) % kTileKeys) throw std::invalid_argument("the room of a buffer must be for whole tiles of 16 rows");
  if (num_rows > buffer.shape(2)) throw std::invalid_argument("there are more rows than the buffer has room for");
}

// Calls `work(slab)` for each slab of a buffer, shared among threads.
template <typename Work>
void for_each_slab(const mx::array& buffer, Work work) {
  const int64_t num_heads = buffer.shape(1), count = buffer.shape(0) * num_heads;
  run_in_parallel(true, [&](const Team& team) {
    team.share(count, [&](const Team::Range& slabs) {
      for (int64_t i = slabs.begin; i < slabs.end; i++) work(Slab{i, i / num_heads % 2 == 0});
    });
  });
}

// A new buffer with the rows of the pieces [2 L, H, n, D] one after the other, and beyond them whatever was there.
mx::array join_rows(std::vector<mx::array> pieces, int capacity) {
  if (pieces.empty()) throw std::invalid_argument("there is nothing to join");
  int num_rows = 0;
  mx::Shape shape = pieces[0].shape();
  for (auto& piece : pieces) {
    if (piece.ndim() != 4) throw std::invalid_argument("the pieces must have four axes");
    shape[2] = piece.shape(2);
    if (piece.shape() != shape || piece.dtype() != pieces[0].dtype())
      throw std::invalid_argument("the pieces must be alike but for their number of rows");
    num_rows += piece.shape(2);
    piece = mx::contiguous(piece);
  }
  mx::eval(pieces);
  shape[2] = capacity;
  mx::array buffer = new_array(shape, pieces[0].dtype());
  check_buffer(buffer, num_rows);
  const int size = shape[3];
  with_element(buffer, [&]<typename Element>(Element) {
    Element* const to = buffer.data<Element>();
    for_each_slab(buffer, [&](const Slab& slab) {
      Element* const own = to + slab.index * capacity * size;
      int64_t row = 0;
      for (const auto& piece : pieces) {
        const int64_t count = piece.shape(2);
        const Element* from = piece.data<Element>() + slab.index * count * size;
        if (slab.has_keys)
          for (int64_t i = 0; i < count; i++) store_key(from + i * size, size, row + i, own);
        else
          std::copy_n(from, count * size, own + row * size);
        row += count;
      }
    });
  });
  return buffer;
}

// A new buffer with the first rows of another.
mx::array move_rows(mx::array buffer, int num_rows, int capacity) {
  mx::eval(buffer);
  check_buffer(buffer, num_rows);
  mx::Shape shape = buffer.shape();
  shape[2] = capacity;
  mx::array moved = new_array(shape, buffer.dtype());
  check_buffer(moved, num_rows);
  const int64_t row_bytes = shape[3] * buffer.itemsize(), tiles = (num_rows + kTileKeys - 1) / kTileKeys;
  const char* const from = buffer.data<char>();
  char* const to = moved.data<char>();
  for_each_slab(moved, [&](const Slab& slab) {
    std::memcpy(to + slab.index * capacity * row_bytes, from + slab.index * buffer.shape(2) * row_bytes,
                tiles * kTileKeys * row_bytes);
  });
  return moved;
}

// Rows [begin, end) by themselves, [2 L, H, n, D].
mx::array read_rows(mx::array buffer, int begin, int end) {
  mx::eval(buffer);
  check_buffer(buffer, end);
  if (begin < 0 || begin > end) throw std::invalid_argument("the rows that are asked for end before they begin");
  mx::Shape shape = buffer.shape();
  const int64_t capacity = shape[2], count = end - begin;
  const int size = shape[3];
  shape[2] = int(count);
  mx::array rows = new_array(shape, buffer.dtype());
  with_element(buffer, [&]<typename Element>(Element) {
    const Element* const from = buffer.data<Element>();
    Element* const to = rows.data<Element>();
    for_each_slab(buffer, [&](const Slab& slab) {
      const Element* const own = from + slab.index * capacity * size;
      Element* const out = to + slab.index * count * size;
      if (slab.has_keys)
        for (int64_t i = 0; i < count; i++) read_key(own, size, begin + i, out + i * size);
      else
        std::copy_n(own + begin * size, count * size, out);
    });
  });
  return rows;
}

}  // namespace

void bind_row_buffers(nb::module_& m) {
  const nb::call_guard<nb::gil_scoped_release> released;
  m.def("join_rows", &join_rows, nb::arg("pieces"), nb::arg("capacity"), released);
  m.def("move_rows", &move_rows, nb::arg("buffer"), nb::arg("num_rows"), nb::arg("capacity"), released);
  m.def("read_rows", &read_rows, nb::arg("buffer"), nb::arg("begin"), nb::arg("end"), released);
}

}  // namespace mtplx
