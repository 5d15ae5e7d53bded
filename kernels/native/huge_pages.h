// Memory in huge pages: a pass reads all weights and rows, and a page of 4 KiB ends before it is well begun.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstddef>

namespace mtplx {

// Only advice, and so is its outcome: before anything is written there the pages can be of any size.
inline void advise_huge_pages(const void* memory, size_t num_bytes) {
  constexpr uintptr_t kPage = 4096;
  const auto start = reinterpret_cast<uintptr_t>(memory), first_page = (start + kPage - 1) / kPage * kPage;
  if (start + num_bytes > first_page)
    madvise(reinterpret_cast<void*>(first_page), (start + num_bytes - first_page) / kPage * kPage, MADV_HUGEPAGE);
}

}  // namespace mtplx
