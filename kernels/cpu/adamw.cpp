// SPDX-License-Identifier: Apache-2.0
#include "kernels/adamw.h"

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel_for.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw.cpp"
#include "kernels/cpu/simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd_typed-inl.h"

// Every backend uses the same IEEE operations, so there is no fused multiply-add and no reciprocal
// here. Stores are plain: every line written was just read, so non-temporal stores would save
// nothing.
HWY_BEFORE_NAMESPACE();
namespace strata::kernels::cpu::HWY_NAMESPACE {

// Loads the exact fp32 master from hi and lo, and stores it back.
struct SplitPlanes {
  uint16_t* hi;
  uint16_t* lo;
  template <typename End>
  HWY_INLINE VF32 load(F32 d, int64_t i, End end) const {
    const hn::RebindToUnsigned<F32> du32;
    const auto low = hn::ShiftRight<16>(hn::BitCast(du32, load_as(d, lo + i, end)));
    const auto high = hn::BitCast(du32, load_as(d, hi + i, end));
    const auto borrow = hn::ShiftLeft<1>(hn::And(low, hn::Set(du32, 0x8000u)));
    return hn::BitCast(d, hn::Or(hn::Sub(high, borrow), low));
  }
  template <typename End>
  HWY_INLINE void store(F32 d, VF32 value, int64_t i, End end) const {
    const hn::RebindToUnsigned<F32> du32;
    store_as(d, value, hi + i, end);
    store_bits(low_halves(hn::BitCast(du32, canonical(d, value))), lo + i, end);
  }
};

struct MasterPlane {
  float* master;
  template <typename End>
  HWY_INLINE VF32 load(F32 d, int64_t i, End end) const {
    return load_as(d, master + i, end);
  }
  template <typename End>
  HWY_INLINE void store(F32 d, VF32 value, int64_t i, End end) const {
    store_as(d, canonical(d, value), master + i, end);
  }
};

// The master, and the f16 weights that are rounded from it.
struct RoundedPlanes : MasterPlane {
  Half* hi;
  template <typename End>
  HWY_INLINE void store(F32 d, VF32 value, int64_t i, End end) const {
    MasterPlane::store(d, value, i, end);
    store_as(d, value, hi + i, end);
  }
};

template <typename Planes>
HWY_INLINE void update(const Planes& planes, const AdamW& op, int64_t begin, int64_t end_index) {
  const AdamWScalars& s = op.scalars;
  float* next_exp_avg_sq = op.next_exp_avg_sq ? op.next_exp_avg_sq : op.exp_avg_sq;
  for_vectors(end_index - begin, [&](auto d, int64_t offset, auto end) HWY_ATTR {
    const int64_t i = begin + offset;
    const VF32 g = hn::Mul(load_as(d, op.grad + i, end), hn::Set(d, s.grad_coefficient));
    VF32 m = load_as(d, op.exp_avg + i, end);
    VF32 v = load_as(d, op.exp_avg_sq + i, end);
    VF32 p = hn::Mul(planes.load(d, i, end), hn::Set(d, s.decay));
    m = hn::Add(m, hn::Mul(hn::Sub(g, m), hn::Set(d, s.one_minus_beta1)));
    v = hn::Add(hn::Mul(v, hn::Set(d, s.beta2)),
                hn::Mul(hn::Mul(g, hn::Set(d, s.one_minus_beta2)), g));
    const VF32 root = hn::Div(hn::Sqrt(v), hn::Set(d, s.denominator_scale));
    const VF32 denominator = hn::Add(root, hn::Set(d, s.eps));
    p = hn::Add(p, hn::Div(hn::Mul(m, hn::Set(d, s.minus_step_size)), denominator));
    store_as(d, canonical(d, m), op.exp_avg + i, end);
    store_as(d, canonical(d, v), next_exp_avg_sq + i, end);
    planes.store(d, p, i, end);
  });
}

void update_split(const AdamW& op, int64_t begin, int64_t end) {
  update(SplitPlanes{op.hi, op.lo}, op, begin, end);
}

void update_master(const AdamW& op, int64_t begin, int64_t end) {
  update(MasterPlane{op.master}, op, begin, end);
}

void update_rounded(const AdamW& op, int64_t begin, int64_t end) {
  update(RoundedPlanes{{op.master}, reinterpret_cast<Half*>(op.hi)}, op, begin, end);
}

}  // namespace strata::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels::cpu {
namespace {

HWY_EXPORT(update_split);
HWY_EXPORT(update_master);
HWY_EXPORT(update_rounded);

constexpr int64_t kBlock = 16384;

}  // namespace

void adamw(const AdamW& op) {
  STRATA_CHECK(is_adamw(op));
  parallel_blocks(op.count, kBlock, [&](int64_t begin, int64_t end) {
    if (op.lo) {
      HWY_DYNAMIC_DISPATCH(update_split)(op, begin, end);
    } else if (op.hi) {
      HWY_DYNAMIC_DISPATCH(update_rounded)(op, begin, end);
    } else {
      HWY_DYNAMIC_DISPATCH(update_master)(op, begin, end);
    }
  });
}

}  // namespace strata::kernels::cpu
#endif  // HWY_ONCE
