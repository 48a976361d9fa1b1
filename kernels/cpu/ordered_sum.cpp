// SPDX-License-Identifier: Apache-2.0
#include "kernels/ordered_sum.h"

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel_for.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/ordered_sum.cpp"
#include "kernels/cpu/simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd_typed-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::cpu::HWY_NAMESPACE {

template <typename End>
HWY_INLINE void store_sum(F32 d, VF32 sum, float* to, End end) {
  store_as(d, canonical(d, sum), to, end);
}

// nearest_bf16 of engine/base/dtype.h.
template <typename End>
HWY_INLINE void store_sum(F32 d, VF32 sum, uint16_t* to, End end) {
  const hn::RebindToUnsigned<F32> du32;
  const auto bits = hn::BitCast(du32, canonical(d, sum));
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du32, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du32, 0x7fffu)));
  store_bits(low_halves(hn::ShiftRight<16>(rounded)), to, end);
}

template <typename From, typename To>
void ordered_sum_as(const OrderedSum& op, int64_t begin, int64_t end) {
  const int sources = op.sources;
  const From* x[kMostSources] = {};
  for (int k = 0; k < sources; ++k) x[k] = static_cast<const From*>(op.x.data()[k]) + begin;
  const float* before = op.before == nullptr ? nullptr : op.before + begin;
  To* y = static_cast<To*>(op.y) + begin;
  for_vectors(end - begin, [&](auto d, int64_t i, auto tail) HWY_ATTR {
    VF32 sum = load_as(d, x[0] + i, tail);
    if (before != nullptr) sum = hn::Add(load_as(d, before + i, tail), sum);
    for (int k = 1; k < sources; ++k) sum = hn::Add(sum, load_as(d, x[k] + i, tail));
    store_sum(d, sum, y + i, tail);
  });
}

void ordered_sum_of(const OrderedSum& op, int64_t begin, int64_t end) {
  const auto with_from = [&](auto from) {
    using From = decltype(from);
    op.to == DType::kF32 ? ordered_sum_as<From, float>(op, begin, end)
                         : ordered_sum_as<From, uint16_t>(op, begin, end);
  };
  op.from == DType::kF32 ? with_from(float{}) : with_from(uint16_t{});
}

}  // namespace strata::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels::cpu {
namespace {

HWY_EXPORT(ordered_sum_of);

}  // namespace

void ordered_sum(const OrderedSum& op) {
  STRATA_CHECK(is_ordered_sum(op));
  constexpr int64_t kBlock = 32768;
  parallel_blocks(op.count, kBlock, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ordered_sum_of)(op, begin, end);
  });
}

}  // namespace strata::kernels::cpu
#endif  // HWY_ONCE
