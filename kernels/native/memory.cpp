// Memory for weights: in huge pages, since each pass reads all of it and a page of 4 KiB ends before it is well begun.
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <sys/mman.h>

#include <cstring>
#include <stdexcept>
#include <tuple>

#include "mlx/allocator.h"
#include "mlx/mlx.h"

namespace nb = nanobind;
namespace mx = mlx::core;

namespace mtplx {
namespace {

constexpr uintptr_t kLine = 64, kPage = 4096;

// Only advice, and so is its outcome: before anything is written there the pages can be of any size.
void advise_huge_pages(const void* memory, size_t num_bytes) {
  const auto start = reinterpret_cast<uintptr_t>(memory), first_page = (start + kPage - 1) / kPage * kPage;
  if (start + num_bytes > first_page)
    madvise(reinterpret_cast<void*>(first_page), (start + num_bytes - first_page) / kPage * kPage, MADV_HUGEPAGE);
}

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

// A new buffer [A, H, capacity, D] with the rows of the pieces [A, H, n, D] one after the other, and beyond them whatever
// was there.
mx::array stack_in_huge_pages(std::vector<mx::array> pieces, int capacity) {
  if (pieces.empty()) throw std::invalid_argument("there is nothing to stack");
  mx::eval(pieces);
  mx::Shape shape = pieces[0].shape();
  if (shape.size() != 4) throw std::invalid_argument("the pieces must be [A, H, n, D]");
  const int64_t row = shape[3];
  int64_t num_rows = 0;
  for (const auto& piece : pieces) {
    const bool alike = piece.ndim() == 4 && piece.shape(0) == shape[0] && piece.shape(1) == shape[1] &&
                       piece.shape(3) == row && piece.dtype() == pieces[0].dtype();
    if (!alike) throw std::invalid_argument("the pieces must be alike but for their number of rows");
    const bool side_by_side = (row == 1 || piece.strides(3) == 1) && (piece.shape(2) < 2 || piece.strides(2) == row);
    if (!side_by_side) throw std::invalid_argument("the rows of a piece must lie side by side");
    num_rows += piece.shape(2);
  }
  if (num_rows > capacity) throw std::invalid_argument("there are more rows than the buffer has room for");
  shape[2] = capacity;
  const int64_t size = pieces[0].itemsize(), slab = capacity * row * size;
  const size_t num_bytes = shape[0] * shape[1] * slab;
  mx::array buffer(mx::allocator::malloc(num_bytes), shape, pieces[0].dtype());
  char* to = buffer.data<char>();
  advise_huge_pages(to, num_bytes);
  for (int a = 0; a < shape[0]; a++)
    for (int head = 0; head < shape[1]; head++, to += slab) {
      char* at = to;
      for (const auto& piece : pieces) {
        const int64_t bytes = piece.shape(2) * row * size;
        std::memcpy(at, piece.data<char>() + (a * piece.strides(0) + head * piece.strides(1)) * size, bytes);
        at += bytes;
      }
    }
  return buffer;
}

}  // namespace

void bind_memory(nb::module_& m) {
  m.def("join_in_huge_pages", &join_in_huge_pages, nb::arg("arrays"),
        nb::call_guard<nb::gil_scoped_release>());
  m.def("stack_in_huge_pages", &stack_in_huge_pages, nb::arg("pieces"), nb::arg("capacity"),
        nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace mtplx
