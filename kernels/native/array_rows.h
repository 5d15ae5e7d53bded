// MLX arrays as rows, for primitives that work row by row: whatever the strides, nothing is copied as a whole.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "mlx/backend/common/utils.h"
#include "mlx/mlx.h"
#include "mlx/primitives.h"

namespace mtplx {

namespace mx = mlx::core;

class CpuPrimitive : public mx::Primitive {
 public:
  using Primitive::Primitive;

  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::runtime_error(std::string(name()) + " runs on the CPU only");
  }
};

// The last axis of a float32 array is a row; the axes before it number the rows. To be made when the array has data.
class ArrayRows {
 public:
  explicit ArrayRows(const mx::array& a)
      : data_(a.data<float>()), length_(a.shape(-1)), step_(length_ > 1 ? a.strides(-1) : 1) {
    for (size_t axis = 0; axis + 1 < a.ndim(); axis++) {
      if (a.shape(axis) == 1) continue;
      if (!shape_.empty() && strides_.back() == a.shape(axis) * a.strides(axis)) {
        shape_.back() *= a.shape(axis);
        strides_.back() = a.strides(axis);
      } else {
        shape_.push_back(a.shape(axis));
        strides_.push_back(a.strides(axis));
      }
    }
  }

  // Where a row's values lie side by side; `gathered` has room for them, should they not do so in the array.
  const float* at(int64_t row, float* gathered) const {
    const float* from = data_ + start(row);
    if (step_ == 1) return from;
    for (int i = 0; i < length_; i++) gathered[i] = from[i * step_];
    return gathered;
  }

 private:
  int64_t start(int64_t row) const {
    if (shape_.empty()) return 0;
    int64_t at = 0;
    for (size_t axis = shape_.size() - 1; axis > 0; axis--) {
      at += row % shape_[axis] * strides_[axis];
      row /= shape_[axis];
    }
    return at + row * strides_[0];
  }

  const float* data_;
  int length_;
  int64_t step_;
  std::vector<int64_t> shape_, strides_;  // of the axes before the last, neighbours made one where that is possible
};

inline int64_t num_rows(const mx::array& a) { return a.size() / std::max(a.shape(-1), 1); }

// Gives `out` memory of its own, or that of `in` where nobody else will read it.
inline void allocate(mx::array& out, const mx::array& in) {
  constexpr size_t kAffordable = 1 << 14;  // bytes too many that are better kept than copied
  const bool fits = in.flags().row_contiguous && in.is_donatable() && in.buffer_size() <= out.nbytes() + kAffordable;
  if (fits)
    out.copy_shared_buffer(in);
  else
    out.set_data(mx::allocator::malloc(out.nbytes()));
}

inline void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

inline void require_float32(const mx::array& a) { require(a.dtype() == mx::float32, "the arrays must be float32"); }

}  // namespace mtplx
