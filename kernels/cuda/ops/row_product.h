// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/ops/launch.h"
#include "kernels/matmul.h"

// Products by_row. A block takes a few outputs for one or eight rows: its threads have some packs
// of inputs each, and one tree adds their sums. So the order of a sum depends on `inputs` alone.
// Blocks of the same outputs are adjacent, so that w comes from memory once.
namespace strata::kernels::cuda {

template <int kCount>
struct Sums {
  float at[kCount];
};
template <int kCount>
struct AddSums {
  STRATA_HOST_DEVICE Sums<kCount> operator()(const Sums<kCount>& a, const Sums<kCount>& b) const {
    Sums<kCount> sum;
    for (int i = 0; i < kCount; ++i) sum.at[i] = a.at[i] + b.at[i];
    return sum;
  }
};

template <typename W, typename X, int kRows, bool kWhole>
struct RowProductBlock {
  static constexpr int kOutputs = 4, kCount = kRows * kOutputs;
  const typename X::Stored* x;
  const typename W::Stored* w;
  const typename W::Stored* bias;  // may be null
  void* y;                         // f32 if `wide`, else as x
  int64_t rows, outputs, inputs, x_stride, y_stride;
  bool wide, accumulate;

  int64_t blocks() const {
    return ceil_div(rows, int64_t{kRows}) * ceil_div(outputs, int64_t{kOutputs});
  }

  template <typename Block>
  STRATA_HOST_DEVICE void operator()(Block& block, int64_t index) const {
    const int64_t tiles = (rows + kRows - 1) / kRows;
    const int64_t row = index % tiles * kRows, out = index / tiles * kOutputs;
    const Sums<kCount> sums = block.reduce(
        [&](int thread) { return sums_of(thread, block.threads, row, out); }, AddSums<kCount>());
    block.each([&](int thread) {
      float value = 0.0f;
      STRATA_UNROLL
      for (int i = 0; i < kCount; ++i) {
        if (thread == i) value = sums.at[i];
      }
      if (thread < kCount) put(row + thread / kOutputs, out + thread % kOutputs, value);
    });
  }

 private:
  // Rows and outputs beyond the last are those of the last, and are not stored.
  STRATA_HOST_DEVICE Sums<kCount> sums_of(int thread, int threads, int64_t row, int64_t out) const {
    const typename X::Stored* lefts[kRows];
    const typename W::Stored* rights[kOutputs];
    for (int r = 0; r < kRows; ++r) {
      lefts[r] = x + (row + r < rows ? row + r : rows - 1) * x_stride;
    }
    for (int o = 0; o < kOutputs; ++o) {
      rights[o] = w + (out + o < outputs ? out + o : outputs - 1) * inputs;
    }
    Sums<kCount> sum = {};
    const auto add = [&](int64_t col) {
      Four right[kOutputs];
      for (int o = 0; o < kOutputs; ++o) {
        right[o] = load_four<W, kWhole>(rights[o] + col, inputs - col);
      }
      for (int r = 0; r < kRows; ++r) {
        const Four left = load_four<X, kWhole>(lefts[r] + col, inputs - col);
        for (int o = 0; o < kOutputs; ++o) {
          float& to = sum.at[r * kOutputs + o];
          for (int i = 0; i < kPack; ++i) to += left.at[i] * right[o].at[i];
        }
      }
    };
    if constexpr (kRows == 1) {
      STRATA_UNROLL_4
      for (int64_t pack = thread; pack * kPack < inputs; pack += threads) add(pack * kPack);
    } else {
      each_pack(thread, threads, inputs, add);
    }
    return sum;
  }

  STRATA_HOST_DEVICE void put(int64_t row, int64_t out, float value) const {
    if (row >= rows || out >= outputs) return;
    const int64_t at = row * y_stride + out;
    if (bias != nullptr) value += W::load(bias[out]);
    wide ? add_to<F32>(at, value) : add_to<X>(at, value);
  }
  template <typename Y>
  STRATA_HOST_DEVICE void add_to(int64_t at, float value) const {
    auto* to = static_cast<typename Y::Stored*>(y) + at;
    *to = Y::store(accumulate ? Y::load(*to) + value : value);
  }
};

template <typename On>
void row_product(On& on, const MatMulForward& op) {
  STRATA_CHECK(op.y.dtype == DType::kF32 || op.y.dtype == op.x.dtype);
  with_both(op.dtype, op.x.dtype, [&](auto t, auto i) {
    using W = decltype(t);
    using X = decltype(i);
    const auto* x = elements<X>(op.x.data);
    const auto* w = elements<W>(op.w);
    const int64_t x_stride = stride_or(op.x_stride, op.inputs);
    const bool whole = op.inputs % kPack == 0 && is_packed(x, x_stride) && is_packed(w);
    const auto run = [&](auto rows, auto flag) {
      const RowProductBlock<W, X, decltype(rows)::value, decltype(flag)::value> body = {
          .x = x,
          .w = w,
          .bias = elements<W>(op.bias),
          .y = op.y.data,
          .rows = op.rows,
          .outputs = op.outputs,
          .inputs = op.inputs,
          .x_stride = x_stride,
          .y_stride = stride_or(op.y_stride, op.outputs),
          .wide = op.y.dtype == DType::kF32,
          .accumulate = op.accumulate};
      on.blocks(body.blocks(), threads_for(op.inputs, 8, 128), body);
    };
    with_flag(whole, [&](auto flag) {
      op.rows == 1 ? run(std::integral_constant<int, 1>(), flag)
                   : run(std::integral_constant<int, 8>(), flag);
    });
  });
}

}  // namespace strata::kernels::cuda
