// SPDX-License-Identifier: Apache-2.0
#include "kernels/norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/rows.h"
#include "kernels/typed.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cpp"
#include "kernels/cpu/simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd_typed-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::cpu::HWY_NAMESPACE {

template <typename T>
void forward_rows_of(const RmsNormForward& op, int64_t begin, int64_t end_row) {
  const F32 df;
  const T* w = static_cast<const T*>(op.w);
  for (int64_t row = begin; row < end_row; ++row) {
    const T* x = static_cast<const T*>(op.x) + row * op.cols;
    float* y = op.y + row * op.cols;
    VF32 squares = hn::Zero(df);
    for_vectors(op.cols, [&](auto d, int64_t i, auto end) HWY_ATTR {
      const VF32 value = load_as(d, x + i, end);
      squares = hn::MulAdd(value, value, squares);
    });
    const float mean = hn::GetLane(hn::SumOfLanes(df, squares)) / static_cast<float>(op.cols);
    const float rstd = 1.0f / std::sqrt(mean + op.eps);
    for_vectors(op.cols, [&](auto d, int64_t i, auto end) HWY_ATTR {
      const VF32 normed = hn::Mul(load_as(d, x + i, end), hn::Set(d, rstd));
      store_as(d, hn::Mul(normed, load_as(d, w + i, end)), y + i, end);
    });
    if (op.rstd) op.rstd[row] = rstd;
  }
}

// dx of rows [begin, end_row), and the sum over them of dy * n into `dw` when it is not null.
template <typename T, typename G>
void backward_rows_of(const RmsNormBackward& op, int64_t begin, int64_t end_row, float* dw) {
  const F32 df;
  const T* w = static_cast<const T*>(op.w);
  for (int64_t row = begin; row < end_row; ++row) {
    const T* x = static_cast<const T*>(op.x) + row * op.cols;
    const float* dy = op.dy + row * op.cols;
    const G* dres = op.dres ? static_cast<const G*>(op.dres) + row * op.cols : nullptr;
    G* dx = static_cast<G*>(op.dx) + row * op.cols;
    const float rstd = op.rstd[row];
    VF32 dot = hn::Zero(df);
    for_vectors(op.cols, [&](auto d, int64_t i, auto end) HWY_ATTR {
      const VF32 n = hn::Mul(load_as(d, x + i, end), hn::Set(d, rstd));
      const VF32 product = hn::Mul(load_as(d, dy + i, end), n);
      dot = hn::MulAdd(product, load_as(d, w + i, end), dot);
      if (dw) store_as(d, hn::Add(load_as(d, dw + i, end), product), dw + i, end);
    });
    const float mean = hn::GetLane(hn::SumOfLanes(df, dot)) / static_cast<float>(op.cols);
    for_vectors(op.cols, [&](auto d, int64_t i, auto end) HWY_ATTR {
      const VF32 n = hn::Mul(load_as(d, x + i, end), hn::Set(d, rstd));
      const VF32 g = hn::Mul(load_as(d, dy + i, end), load_as(d, w + i, end));
      const VF32 change = hn::Mul(hn::NegMulAdd(n, hn::Set(d, mean), g), hn::Set(d, rstd));
      const VF32 residual = dres ? load_as(d, dres + i, end) : hn::Zero(d);
      store_as(d, hn::Add(residual, change), dx + i, end);
    });
  }
}

void forward_rows(const RmsNormForward& op, int64_t begin, int64_t end) {
  if (op.dtype == DType::kF32) {
    forward_rows_of<float>(op, begin, end);
  } else {
    forward_rows_of<uint16_t>(op, begin, end);
  }
}

void backward_rows(const RmsNormBackward& op, int64_t begin, int64_t end, float* dw) {
  if (op.dtype == DType::kF32) {
    op.gradient_dtype == DType::kF32 ? backward_rows_of<float, float>(op, begin, end, dw)
                                     : backward_rows_of<float, uint16_t>(op, begin, end, dw);
  } else {
    op.gradient_dtype == DType::kF32 ? backward_rows_of<uint16_t, float>(op, begin, end, dw)
                                     : backward_rows_of<uint16_t, uint16_t>(op, begin, end, dw);
  }
}

}  // namespace strata::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
namespace cpu {
namespace {

HWY_EXPORT(forward_rows);
HWY_EXPORT(backward_rows);

// Rows whose share of dw is summed by one task; the shares are then added in ascending order.
constexpr int64_t kBlockRows = 32;

}  // namespace

void rms_norm_forward(const RmsNormForward& op) {
  STRATA_CHECK(op.rows > 0 && op.cols > 0 && is_float_or_bf16(op.dtype));
  parallel_blocks(op.rows, kBlockRows, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(forward_rows)(op, begin, end);
  });
}

void rms_norm_backward(const RmsNormBackward& op) {
  STRATA_CHECK(op.rows > 0 && op.cols > 0 && is_float_or_bf16(op.dtype));
  STRATA_CHECK(is_float_or_bf16(op.gradient_dtype));
  STRATA_CHECK(!op.dw || op.workspace.bytes >= workspace_bytes(op, 1));
  float* shares = reinterpret_cast<float*>(op.workspace.data);
  const int64_t blocks = ceil_div(op.rows, kBlockRows);
  parallel_for(blocks, [&](int64_t index, int) {
    float* share = op.dw ? shares + index * op.cols : nullptr;
    if (share) std::fill_n(share, op.cols, 0.0f);
    HWY_DYNAMIC_DISPATCH(backward_rows)
    (op, index * kBlockRows, std::min(op.rows, (index + 1) * kBlockRows), share);
  });
  if (!op.dw) return;
  parallel_blocks(op.cols, 512, [&](int64_t begin, int64_t end) {
    if (!op.accumulate) std::fill(op.dw + begin, op.dw + end, 0.0f);
    for (int64_t index = 0; index < blocks; ++index) {
      add_to(shares + index * op.cols + begin, op.dw + begin, end - begin);
    }
  });
}

}  // namespace cpu

int64_t workspace_bytes(const RmsNormBackward& op, int) {
  return ceil_div(op.rows, cpu::kBlockRows) * op.cols * 4;
}

}  // namespace strata::kernels
#endif  // HWY_ONCE
