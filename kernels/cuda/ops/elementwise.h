// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <span>

#include "kernels/cuda/ops/launch.h"
#include "kernels/elementwise.h"
#include "kernels/gather_rows.h"
#include "kernels/ordered_sum.h"

namespace strata::kernels::cuda {

template <typename T, typename I, bool kWhole>
struct AddResidualPack {
  const typename T::Stored* x;
  const typename I::Stored* a;
  typename T::Stored* y;
  int64_t count;
  STRATA_HOST_DEVICE void operator()(int64_t, int64_t at) const {
    Four sum = load_four<T, kWhole>(x + at, count - at);
    sum = SumFour()(sum, load_four<I, kWhole>(a + at, count - at));
    store_four<T, kWhole>(y + at, count - at, sum);
  }
};

// y = x in other types, and y = value where x is null.
template <typename T, typename I, bool kWhole>
struct CastPack {
  const typename T::Stored* x;
  typename I::Stored* y;
  int64_t count;
  float value;
  STRATA_HOST_DEVICE void operator()(int64_t, int64_t at) const {
    Four four = {{value, value, value, value}};
    if (x != nullptr) four = load_four<T, kWhole>(x + at, count - at);
    store_four<I, kWhole>(y + at, count - at, four);
  }
};

template <bool kWhole>
struct SoftCapPack {
  float* y;
  int64_t count;
  float cap;
  STRATA_HOST_DEVICE void operator()(int64_t, int64_t at) const {
    Four four = load_four<F32, kWhole>(y + at, count - at);
    for (int i = 0; i < kPack; ++i) four.at[i] = cap * tanhf(four.at[i] / cap);
    store_four<F32, kWhole>(y + at, count - at, four);
  }
};

// All sources are loaded before the first addition, so that loads are in flight together, and
// before y is written, which may be one of them.
template <typename From, typename To, bool kWhole>
struct OrderedSumPack {
  using Stored = typename From::Stored;
  const Stored* x[kMostSources];
  int sources;
  const float* before;
  typename To::Stored* y;
  int64_t count;
  STRATA_HOST_DEVICE void operator()(int64_t, int64_t at) const {
    const int64_t left = count - at;
    Pack<Stored> value[kMostSources] = {};
    STRATA_UNROLL
    for (int k = 0; k < kMostSources; ++k) {
      if (k < sources) value[k] = load_pack<kWhole>(x[k] + at, left);
    }
    Four sum;
    Pack<float> first = {};
    if (before != nullptr) first = load_pack<kWhole>(before + at, left);
    for (int i = 0; i < kPack; ++i) {
      const float own = From::load(value[0].at[i]);
      sum.at[i] = before != nullptr ? exact_add(first.at[i], own) : own;
    }
    STRATA_UNROLL
    for (int k = 1; k < kMostSources; ++k) {
      if (k < sources) {
        for (int i = 0; i < kPack; ++i) {
          sum.at[i] = exact_add(sum.at[i], From::load(value[k].at[i]));
        }
      }
    }
    for (int i = 0; i < kPack; ++i) sum.at[i] = canonical(sum.at[i]);
    store_four<To, kWhole>(y + at, left, sum);
  }
};

// A block copies so many bytes, in wide words where both ends and the length allow it.
template <typename Block>
STRATA_HOST_DEVICE void copy_bytes(Block& block, const std::byte* from, std::byte* to,
                                   int64_t bytes, bool in_wide_words) {
  using Wide = Pack<uint32_t>;
  const int64_t wide = in_wide_words ? bytes / static_cast<int64_t>(sizeof(Wide)) : 0;
  block.each([&](int thread) {
    for (int64_t i = thread; i < wide; i += block.threads) {
      reinterpret_cast<Wide*>(to)[i] = reinterpret_cast<const Wide*>(from)[i];
    }
    const int64_t rest = wide * static_cast<int64_t>(sizeof(Wide));
    for (int64_t i = rest + thread; i < bytes; i += block.threads) to[i] = from[i];
  });
}

struct GatherRow {
  const std::byte* x;
  const int32_t* position;
  std::byte* y;
  int64_t length, stride, row_bytes;
  bool whole;
  template <typename Block>
  STRATA_HOST_DEVICE void operator()(Block& block, int64_t row) const {
    STRATA_KERNEL_CHECK(position[row] >= 0 && position[row] < length);
    const std::byte* from = x + (row * stride + position[row]) * row_bytes;
    copy_bytes(block, from, y + row * row_bytes, row_bytes, whole);
  }
};

struct CopyRow {
  const std::byte* x;
  std::byte* y;
  int64_t x_stride, y_stride, row_bytes;
  bool whole;
  template <typename Block>
  STRATA_HOST_DEVICE void operator()(Block& block, int64_t row) const {
    copy_bytes(block, x + row * x_stride, y + row * y_stride, row_bytes, whole);
  }
};

template <typename On>
void add_residual(On& on, const AddResidual& op) {
  with_both(op.dtype, op.a.dtype, [&](auto t, auto i) {
    using T = decltype(t);
    using I = decltype(i);
    const auto* x = elements<T>(op.x);
    const auto* a = elements<I>(op.a.data);
    auto* y = elements<T>(op.y);
    const bool whole = op.count % kPack == 0 && is_packed(x) && is_packed(a) && is_packed(y);
    with_flag(whole, [&](auto flag) {
      on.grid(1, op.count, AddResidualPack<T, I, decltype(flag)::value>{x, a, y, op.count});
    });
  });
}

template <typename On>
void add(On& on, const Add& op) {
  add_residual(on, {.count = op.count, .x = op.y, .a = op.a, .y = op.y});
}

template <typename On, typename T, typename I>
void cast_as(On& on, T, I, const void* from, void* to, int64_t count, float value) {
  const auto* x = elements<T>(from);
  auto* y = elements<I>(to);
  with_flag(count % kPack == 0 && is_packed(x) && is_packed(y), [&](auto flag) {
    on.grid(1, count, CastPack<T, I, decltype(flag)::value>{x, y, count, value});
  });
}

template <typename On>
void fill(On& on, const Fill& op) {
  with_inside(op.y.dtype,
              [&](auto i) { cast_as(on, F32(), i, nullptr, op.y.data, op.count, op.value); });
}

template <typename On>
void cast(On& on, const Cast& op) {
  with_both(op.dtype, op.y.dtype,
            [&](auto t, auto i) { cast_as(on, t, i, op.x, op.y.data, op.count, 0.0f); });
}

template <typename On>
void soft_cap(On& on, const SoftCap& op) {
  STRATA_CHECK(op.cap > 0.0f);
  with_flag(op.count % kPack == 0 && is_packed(op.y), [&](auto flag) {
    on.grid(1, op.count, SoftCapPack<decltype(flag)::value>{op.y, op.count, op.cap});
  });
}

template <typename On, typename From, typename To>
void ordered_sum_as(On& on, From, To, const OrderedSum& op) {
  const auto sources = std::span(op.x).first(static_cast<size_t>(op.sources));
  auto* y = elements<To>(op.y);
  bool whole = op.count % kPack == 0 && is_packed(y);
  for (const void* x : sources) whole = whole && is_packed(elements<From>(x));
  if (op.before != nullptr) whole = whole && is_packed(op.before);
  with_flag(whole, [&](auto flag) {
    OrderedSumPack<From, To, decltype(flag)::value> pack = {{}, op.sources, op.before, y, op.count};
    auto* to = pack.x;
    for (const void* x : sources) *to++ = elements<From>(x);
    on.grid(1, op.count, pack);
  });
}

template <typename On>
void ordered_sum(On& on, const OrderedSum& op) {
  STRATA_CHECK(is_ordered_sum(op));
  const auto with_from = [&](auto from) {
    op.to == DType::kF32 ? ordered_sum_as(on, from, F32(), op)
                         : ordered_sum_as(on, from, Inside16(), op);
  };
  op.from == DType::kF32 ? with_from(F32()) : with_from(Inside16());
}

template <typename On>
void gather_rows(On& on, const GatherRows& op) {
  const auto* x = static_cast<const std::byte*>(op.x);
  auto* y = static_cast<std::byte*>(op.y);
  const bool whole = reinterpret_cast<uintptr_t>(x) % 16 == 0 &&
                     reinterpret_cast<uintptr_t>(y) % 16 == 0 && op.row_bytes % 16 == 0;
  if (op.rows == 0) return;
  on.blocks(
      op.rows, 256,
      GatherRow{x, op.position, y, op.length, op.together ? 0 : op.length, op.row_bytes, whole});
}

template <typename On>
void copy_rows(On& on, const CopyRows& op) {
  const auto* x = static_cast<const std::byte*>(op.x);
  auto* y = static_cast<std::byte*>(op.y);
  const auto all = reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y) |
                   static_cast<uintptr_t>(op.x_stride | op.y_stride | op.row_bytes);
  if (op.rows == 0) return;
  on.blocks(op.rows, 256, CopyRow{x, y, op.x_stride, op.y_stride, op.row_bytes, all % 16 == 0});
}

}  // namespace strata::kernels::cuda
