// Memory for weights.
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <stdexcept>
#include <tuple>

#include "huge_pages.h"
#include "mlx/allocator.h"
#include "mlx/mlx.h"

namespace nb = nanobind;
namespace mx = mlx::core;

namespace mtplx {
namespace {

constexpr uintptr_t kLine = 64;

// The arrays one after the other, as one of one dimension, and the index where they begin: at a whole cache line. Before
// it and after the last is room that means nothing.
std::tuple<mx::array, int64_t> join_in_huge_pages(std::vector<mx::array> arrays) {
  if (arrays.empty()) throw std::invalid_argument("there is nothing to join");
  mx::eval(arrays);
  const mx::Dtype type = arrays[0].dtype();
  size_t num_bytes = 2 * kLine;
  for (const auto& array : arrays) {
    if (array.dtype() != type) throw std::invalid_argument("arrays of one type only can be joined");
    if (!array.flags().row_contiguous) throw std::invalid_argument("an array does not lie in one piece");
    num_bytes += array.nbytes();
  }
  mx::array joined(mx::allocator::malloc(num_bytes), {int(num_bytes / type.size())}, type);
  auto* const memory = joined.data<char>();
  advise_huge_pages(memory, num_bytes);

  const size_t first = (kLine - reinterpret_cast<uintptr_t>(memory) % kLine) % kLine;
  char* to = memory + first;
  for (const auto& array : arrays) {
    std::memcpy(to, array.data<char>(), array.nbytes());
    to += array.nbytes();
  }
  return {joined, int64_t(first / type.size())};
}

}  // namespace

void bind_memory(nb::module_& m) {
  m.def("join_in_huge_pages", &join_in_huge_pages, nb::arg("arrays"),
        nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace mtplx
