// SPDX-License-Identifier: Apache-2.0
#include "kernels/convert.h"

#include <cstring>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/ref/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/convert.cpp"
#include "kernels/cpu/simd.h"

#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

// Without vectors, the plain loops convert everything.
int64_t split_bf16(const ConvertIn&) {
  return 0;
}
int64_t widen_bf16(const ConvertIn&) {
  return 0;
}
int64_t split_f32(const ConvertIn&) {
  return 0;
}

#else

namespace hn = hwy::HWY_NAMESPACE;

using U8 = hn::ScalableTag<uint8_t>;
using U16 = hn::Repartition<uint16_t, U8>;
using U32 = hn::Repartition<uint32_t, U8>;

// Loads elements from any address, aligned or not.
template <typename D>
HWY_INLINE hn::Vec<D> load_any(D d, const char* from) {
  return hn::BitCast(d, hn::LoadU(U8(), reinterpret_cast<const uint8_t*>(from)));
}

// The functions below convert whole vectors and return the number of converted elements.

bool is_aligned(const void* to, size_t bytes) {
  return reinterpret_cast<uintptr_t>(to) % bytes == 0;
}

// A bf16 is the upper half of its master, whose lower half is 0. Weights are converted when a run
// begins, long before they are used, so non-temporal stores bypass the caches.
int64_t split_bf16(const ConvertIn& op) {
  const U16 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const size_t vector_bytes = hn::Lanes(d) * sizeof(uint16_t);
  const bool streams = is_aligned(op.hi, vector_bytes) && is_aligned(op.lo, vector_bytes);
  const char* src = static_cast<const char*>(op.src);
  int64_t i = 0;
  for (; i + lanes <= op.count; i += lanes) {
    const auto bits = load_any(d, src + 2 * i);
    const auto is_nan = hn::Gt(hn::And(bits, hn::Set(d, 0x7fffu)), hn::Set(d, 0x7f80u));
    const auto weight = hn::IfThenElse(is_nan, hn::Set(d, 0x7fc0u), bits);
    if (streams) {
      hn::Stream(weight, d, op.hi + i);
      hn::Stream(hn::Zero(d), d, op.lo + i);
    } else {
      hn::StoreU(weight, d, op.hi + i);
      hn::StoreU(hn::Zero(d), d, op.lo + i);
    }
  }
  if (streams) hwy::FlushStream();
  return i;
}

int64_t widen_bf16(const ConvertIn& op) {
  const U32 d;
  const hn::Rebind<uint16_t, U32> half;
  const hn::Repartition<uint8_t, decltype(half)> bytes;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const char* src = static_cast<const char*>(op.src);
  int64_t i = 0;
  for (; i + lanes <= op.count; i += lanes) {
    const auto bits =
        hn::BitCast(half, hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(src + 2 * i)));
    hn::StoreU(hn::ShiftLeft<16>(hn::PromoteTo(d, bits)), d,
               reinterpret_cast<uint32_t*>(op.master + i));
  }
  return i;
}

// split_master of each element; without lo, only the upper halves.
int64_t split_f32(const ConvertIn& op) {
  const U32 d;
  const hn::Rebind<uint16_t, U32> half;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const char* src = static_cast<const char*>(op.src);
  int64_t i = 0;
  for (; i + lanes <= op.count; i += lanes) {
    auto bits = load_any(d, src + 4 * i);
    const auto is_nan = hn::Gt(hn::And(bits, hn::Set(d, 0x7fffffffu)), hn::Set(d, 0x7f800000u));
    bits = hn::IfThenElse(is_nan, hn::Set(d, 0x7fc00000u), bits);
    const auto upper = hn::ShiftRight<16>(hn::Add(bits, hn::Set(d, 0x8000u)));
    hn::StoreU(hn::TruncateTo(half, upper), half, op.hi + i);
    if (op.lo) hn::StoreU(hn::TruncateTo(half, bits), half, op.lo + i);
  }
  return i;
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace strata::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels::cpu {
namespace {

HWY_EXPORT(split_bf16);
HWY_EXPORT(widen_bf16);
HWY_EXPORT(split_f32);

constexpr int64_t kBlock = 32768;

template <typename T>
T* at(T* plane, int64_t begin) {
  return plane ? plane + begin : nullptr;
}

ConvertIn part_of(const ConvertIn& op, int64_t begin, int64_t count) {
  ConvertIn part = op;
  part.count = count;
  part.src = static_cast<const char*>(op.src) + begin * bytes_of(op.dtype);
  part.master = at(op.master, begin);
  part.hi = at(op.hi, begin);
  part.lo = at(op.lo, begin);
  return part;
}

// Returns how many elements, from the first on, the vector loops converted. f16 takes the plain
// loops.
int64_t convert_vectors(const ConvertIn& op) {
  if (op.master && op.hi) return 0;
  if (op.dtype == DType::kBF16 && op.master) return HWY_DYNAMIC_DISPATCH(widen_bf16)(op);
  if (op.dtype == DType::kBF16 && op.lo) return HWY_DYNAMIC_DISPATCH(split_bf16)(op);
  const bool is_split = op.lo || op.weights == DType::kBF16;
  if (op.dtype == DType::kF32 && op.hi && is_split) return HWY_DYNAMIC_DISPATCH(split_f32)(op);
  return 0;
}

}  // namespace

void convert_in(const ConvertIn& op) {
  parallel_blocks(op.count, kBlock, [&](int64_t begin, int64_t end) {
    const ConvertIn part = part_of(op, begin, end - begin);
    if (op.dtype == DType::kF32 && op.master && !op.hi) {
      std::memcpy(part.master, part.src, static_cast<size_t>(4 * part.count));
    } else {
      const int64_t done = convert_vectors(part);
      if (done < part.count) ref::convert_in(part_of(part, done, part.count - done));
    }
  });
}

// The disk limits the speed, so the plain loops on several threads are enough.
void convert_out(const ConvertOut& op) {
  parallel_blocks(op.count, kBlock, [&](int64_t begin, int64_t end) {
    ConvertOut part = op;
    part.count = end - begin;
    part.master = at(op.master, begin);
    part.hi = at(op.hi, begin);
    part.lo = at(op.lo, begin);
    part.dst = static_cast<char*>(op.dst) + begin * bytes_of(op.dtype);
    ref::convert_out(part);
  });
}

}  // namespace strata::kernels::cpu
#endif  // HWY_ONCE
