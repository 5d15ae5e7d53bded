// Keys of a head in tiles of 16 rows, [capacity / 16][D][16]: a vector holds one element of 16 keys, as scores want them.
//
// What a tile holds beyond the last row is 0 or a key that was dropped: numbers that are quick to multiply. Hence whoever
// stores a tile's first key must not be another than whoever stores the next ones meanwhile.
#pragma once

#include <algorithm>
#include <cstdint>

#include "simd.h"

namespace mtplx {

constexpr int kTileKeys = kLanes;

// Where the element 0 of a row's key lies; the next ones are kTileKeys apart each.
inline int64_t key_place(int64_t row, int size) { return row / kTileKeys * kTileKeys * size + row % kTileKeys; }

template <typename From, typename Element>
void store_key(const From* from, int size, int64_t row, Element* keys) {
  Element* const to = keys + key_place(row, size);
  if (row % kTileKeys == 0) std::fill_n(to, kTileKeys * size, Element(0));
  for (int d = 0; d < size; d++) to[d * kTileKeys] = Element(from[d]);
}

template <typename Element>
void read_key(const Element* keys, int size, int64_t row, Element* to) {
  const Element* const from = keys + key_place(row, size);
  for (int d = 0; d < size; d++) to[d] = from[d * kTileKeys];
}

}  // namespace mtplx
