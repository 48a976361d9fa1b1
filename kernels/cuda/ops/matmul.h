// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/ops/column_sums.h"
#include "kernels/cuda/ops/elementwise.h"
#include "kernels/cuda/ops/product.h"
#include "kernels/cuda/ops/row_product.h"
#include "kernels/matmul.h"

// Products with a weight matrix. A bias is written first and the product added to it, so that the
// sum is rounded once.
namespace strata::kernels::cuda {

// Hands out parts of a workspace.
class Rest {
 public:
  explicit Rest(const Workspace& workspace) : left_(workspace) {}
  std::byte* take(int64_t bytes) {
    STRATA_CHECK(bytes <= left_.bytes);
    std::byte* taken = left_.data;
    left_ = {taken + bytes, left_.bytes - bytes};
    return taken;
  }
  const Workspace& left() const {
    STRATA_CHECK(left_.bytes >= kLibraryBytes);
    return left_;
  }

 private:
  Workspace left_;
};

// y[r, c] = x[r, c] in f32, dense.
template <typename X, bool kWhole>
struct WidenPack {
  const typename X::Stored* x;
  float* y;
  int64_t cols, stride;
  STRATA_HOST_DEVICE void operator()(int64_t row, int64_t col) const {
    const Four four = load_four<X, kWhole>(x + row * stride + col, cols - col);
    store_four<F32, kWhole>(y + row * cols + col, cols - col, four);
  }
};

// The operand [rows, cols] in `type`: itself, or widened to f32 in scratch.
template <typename On>
Operand operand_as(On& on, DType type, const Operand& from, int64_t rows, int64_t cols,
                   Rest& rest) {
  if (from.data.dtype == type) return from;
  STRATA_CHECK(type == DType::kF32 && is_weight_type(from.data.dtype));
  auto* y = reinterpret_cast<float*>(rest.take(aligned_bytes(rows * cols * 4)));
  const auto widen = [&](auto kind) {
    using X = decltype(kind);
    const auto* x = elements<X>(from.data.data);
    const bool whole = cols % kPack == 0 && is_packed(x, from.stride) && is_packed(y);
    with_flag(whole, [&](auto flag) {
      on.grid(rows, cols, WidenPack<X, decltype(flag)::value>{x, y, cols, from.stride});
    });
  };
  from.data.dtype == DType::kBF16 ? widen(Weight16()) : widen(F16());
  return {.data = y, .stride = cols, .transposed = from.transposed};
}

// f32 unless both are of one type.
inline DType product_type(DType a, DType b) {
  return a == b ? a : DType::kF32;
}

// y[r, c] (+)= bias[c]
template <typename T, typename I, bool kWhole>
struct BiasPack {
  const typename T::Stored* bias;
  typename I::Stored* y;
  int64_t cols, stride;
  bool accumulate;
  STRATA_HOST_DEVICE void operator()(int64_t row, int64_t col) const {
    const int64_t left = cols - col;
    auto* to = y + row * stride + col;
    Four sum = load_four<T, kWhole>(bias + col, left);
    if (accumulate) sum = SumFour()(sum, load_four<I, kWhole>(to, left));
    store_four<I, kWhole>(to, left, sum);
  }
};

template <typename On>
void matmul_forward(On& on, const MatMulForward& op) {
  STRATA_CHECK(op.rows > 0 && op.outputs > 0 && op.inputs > 0);
  if (op.by_row) return row_product(on, op);
  const int64_t y_stride = stride_or(op.y_stride, op.outputs);
  if (op.bias != nullptr) {
    with_both(op.dtype, op.y.dtype, [&](auto t, auto i) {
      using T = decltype(t);
      using I = decltype(i);
      const auto* bias = elements<T>(op.bias);
      auto* y = elements<I>(op.y.data);
      const bool whole = op.outputs % kPack == 0 && is_packed(bias) && is_packed(y, y_stride);
      with_flag(whole, [&](auto flag) {
        on.grid(
            op.rows, op.outputs,
            BiasPack<T, I, decltype(flag)::value>{bias, y, op.outputs, y_stride, op.accumulate});
      });
    });
  }
  Rest rest(op.workspace);
  const DType type = product_type(op.x.dtype, op.dtype);
  const Operand x = {.data = op.x, .stride = stride_or(op.x_stride, op.inputs)};
  const Operand w = {.data = {op.w, op.dtype}, .stride = op.inputs, .transposed = true};
  const Operand a = operand_as(on, type, x, op.rows, op.inputs, rest);
  const Operand b = operand_as(on, type, w, op.outputs, op.inputs, rest);
  on.product({.m = op.rows,
              .n = op.outputs,
              .k = op.inputs,
              .a = a,
              .b = b,
              .c = {.data = op.y, .stride = y_stride},
              .accumulate = op.accumulate || op.bias != nullptr,
              .workspace = rest.left()});
}

template <typename On>
void matmul_input(On& on, const MatMulInput& op) {
  STRATA_CHECK(op.rows > 0 && op.outputs > 0 && op.inputs > 0);
  Rest rest(op.workspace);
  const DType type = product_type(op.dy.dtype, op.dtype);
  const Operand dy = {.data = op.dy, .stride = stride_or(op.dy_stride, op.outputs)};
  const Operand w = {.data = {op.w, op.dtype}, .stride = op.inputs};
  const Operand a = operand_as(on, type, dy, op.rows, op.outputs, rest);
  const Operand b = operand_as(on, type, w, op.outputs, op.inputs, rest);
  on.product({.m = op.rows,
              .n = op.inputs,
              .k = op.outputs,
              .a = a,
              .b = b,
              .c = {.data = op.dx, .stride = stride_or(op.dx_stride, op.inputs)},
              .accumulate = op.accumulate,
              .workspace = rest.left()});
}

// dy[r, c], whose sum over rows is the gradient of the bias.
template <typename I, bool kWhole>
struct BiasTerm {
  const typename I::Stored* dy;
  int64_t cols, stride;
  using Loaded = Pack<typename I::Stored>;
  STRATA_HOST_DEVICE Loaded load(int64_t row, int64_t col) const {
    return load_pack<kWhole>(dy + row * stride + col, cols - col);
  }
  STRATA_HOST_DEVICE static void add(const Loaded& loaded, Four& sum) {
    sum = SumFour()(sum, unpack<I>(loaded));
  }
};

// dy and x have the interior's type. The bias's shares take the workspace after the product.
template <typename On>
void matmul_weight(On& on, const MatMulWeight& op) {
  STRATA_CHECK(op.rows > 0 && op.outputs > 0 && op.inputs > 0 && op.dy.dtype == op.x.dtype);
  const int64_t dy_stride = stride_or(op.dy_stride, op.outputs);
  on.product({.m = op.outputs,
              .n = op.inputs,
              .k = op.rows,
              .a = {.data = op.dy, .stride = dy_stride, .transposed = true},
              .b = {.data = op.x, .stride = stride_or(op.x_stride, op.inputs)},
              .c = {.data = op.dw, .stride = op.inputs},
              .accumulate = op.accumulate,
              .workspace = Rest(op.workspace).left()});
  if (op.dbias == nullptr) return;
  STRATA_CHECK(op.workspace.bytes >= shares_bytes(op.rows, op.outputs));
  with_inside(op.dy.dtype, [&](auto i) {
    using I = decltype(i);
    const auto* dy = elements<I>(op.dy.data);
    with_flag(op.outputs % kPack == 0 && is_packed(dy, dy_stride), [&](auto flag) {
      sum_columns(on, BiasTerm<I, decltype(flag)::value>{dy, op.outputs, dy_stride}, op.rows,
                  op.outputs, reinterpret_cast<float*>(op.workspace.data), op.accumulate, op.dbias);
    });
  });
}

}  // namespace strata::kernels::cuda
