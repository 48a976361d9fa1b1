// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "engine/base/dtype.h"
#include "kernels/typed.h"

// Elements for kernels that are compiled twice from one source: by nvcc for the device, and by the
// host's compiler for the host twin. Neither contracts products and sums (-fmad=false,
// -ffp-contract=off), so both round alike; exp, log and tanh are those of each library.
#ifdef __CUDACC__
#define STRATA_HOST_DEVICE __host__ __device__
#else
#define STRATA_HOST_DEVICE
#endif

// Stops at a bug that only the kernel can see, such as a token beyond the vocabulary. On a device
// the launch fails, which its queue reports.
#ifdef __CUDA_ARCH__
#define STRATA_KERNEL_CHECK(condition) ((condition) ? void(0) : __trap())
#else
#define STRATA_KERNEL_CHECK(condition) STRATA_CHECK(condition)
#endif

namespace strata::kernels::cuda {

// Element types. Weight16 is bf16 at a segment's boundary, stored as a master becomes a weight;
// Inside16 is bf16 within a segment, stored to nearest even. F16 is the same in both places.
struct F32 {
  using Stored = float;
  static constexpr DType kType = DType::kF32;
  STRATA_HOST_DEVICE static float load(float stored) { return stored; }
  STRATA_HOST_DEVICE static float store(float value) { return value; }
};
struct Weight16 {
  using Stored = uint16_t;
  static constexpr DType kType = DType::kBF16;
  STRATA_HOST_DEVICE static float load(uint16_t stored) { return from_bf16(stored); }
  STRATA_HOST_DEVICE static uint16_t store(float value) { return to_bf16(value); }
};
struct Inside16 : Weight16 {
  STRATA_HOST_DEVICE static uint16_t store(float value) { return nearest_bf16(value); }
};
struct F16 {
  using Stored = uint16_t;
  static constexpr DType kType = DType::kF16;
  STRATA_HOST_DEVICE static float load(uint16_t stored) { return from_f16(stored); }
  STRATA_HOST_DEVICE static uint16_t store(float value) { return to_f16(value); }
};

// Four consecutive elements, which a thread loads and stores at once.
inline constexpr int kPack = 4;
template <typename T>
struct alignas(kPack * sizeof(T)) Pack {
  T at[kPack];
};
using Four = Pack<float>;

// Loads and stores elements [0, 4) of `data`, of which `left` exist; absent ones load as zero.
// With kWhole all four exist, and `data` is aligned to a pack. The flag changes no result; on the
// host it is used where a sanitizer looks at the addresses.
#if defined(__CUDA_ARCH__) || defined(STRATA_HOST_PACKS)
#define STRATA_LOADS_PACKS(kWhole) kWhole
#else
#define STRATA_LOADS_PACKS(kWhole) false
#endif
template <bool kWhole, typename T>
STRATA_HOST_DEVICE Pack<T> load_pack(const T* data, int64_t left) {
  if constexpr (STRATA_LOADS_PACKS(kWhole)) {
    return *reinterpret_cast<const Pack<T>*>(data);
  } else {
    Pack<T> pack = {};
    for (int i = 0; i < kPack; ++i) {
      if (kWhole || i < left) pack.at[i] = data[i];
    }
    return pack;
  }
}

template <bool kWhole, typename T>
STRATA_HOST_DEVICE void store_pack(T* data, int64_t left, const Pack<T>& pack) {
  if constexpr (STRATA_LOADS_PACKS(kWhole)) {
    *reinterpret_cast<Pack<T>*>(data) = pack;
  } else {
    for (int i = 0; i < kPack; ++i) {
      if (kWhole || i < left) data[i] = pack.at[i];
    }
  }
}

template <typename Kind>
STRATA_HOST_DEVICE Four unpack(const Pack<typename Kind::Stored>& pack) {
  Four four;
  for (int i = 0; i < kPack; ++i) four.at[i] = Kind::load(pack.at[i]);
  return four;
}

template <typename Kind, bool kWhole>
STRATA_HOST_DEVICE Four load_four(const typename Kind::Stored* data, int64_t left) {
  return unpack<Kind>(load_pack<kWhole>(data, left));
}

template <typename Kind, bool kWhole>
STRATA_HOST_DEVICE void store_four(typename Kind::Stored* data, int64_t left, const Four& four) {
  Pack<typename Kind::Stored> pack;
  for (int i = 0; i < kPack; ++i) pack.at[i] = Kind::store(four.at[i]);
  store_pack<kWhole>(data, left, pack);
}

// Whether packs that begin at a multiple of four elements are aligned. Null pointers are.
template <typename T>
bool is_packed(const T* data, int64_t stride = 0) {
  return reinterpret_cast<uintptr_t>(data) % alignof(Pack<T>) == 0 && stride % kPack == 0;
}

// One IEEE operation each, which no compiler may join with another.
STRATA_HOST_DEVICE inline float exact_mul(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
STRATA_HOST_DEVICE inline float exact_add(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}
STRATA_HOST_DEVICE inline float exact_div(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}
STRATA_HOST_DEVICE inline float exact_sqrt(float a) {
#ifdef __CUDA_ARCH__
  return __fsqrt_rn(a);
#else
  return std::sqrt(a);
#endif
}

// Calls body with the element type as a value.
template <typename Bf16, typename Body>
void with_kind(DType type, const Body& body) {
  STRATA_CHECK(is_weight_type(type));
  type == DType::kF32 ? body(F32()) : type == DType::kBF16 ? body(Bf16()) : body(F16());
}
template <typename Body>
void with_boundary(DType type, const Body& body) {
  with_kind<Weight16>(type, body);
}
template <typename Body>
void with_inside(DType type, const Body& body) {
  with_kind<Inside16>(type, body);
}
// Calls body with both. One of them is f32, or they are one type.
template <typename Body>
void with_both(DType boundary, DType inside, const Body& body) {
  STRATA_CHECK(boundary == inside || boundary == DType::kF32 || inside == DType::kF32);
  with_boundary(boundary, [&](auto t) {
    with_inside(inside, [&](auto i) {
      constexpr DType kT = decltype(t)::kType, kI = decltype(i)::kType;
      if constexpr (kT == kI || kT == DType::kF32 || kI == DType::kF32) body(t, i);
    });
  });
}
template <typename Body>
void with_flag(bool flag, const Body& body) {
  flag ? body(std::true_type()) : body(std::false_type());
}

template <typename Kind>
const typename Kind::Stored* elements(const void* data) {
  return static_cast<const typename Kind::Stored*>(data);
}
template <typename Kind>
typename Kind::Stored* elements(void* data) {
  return static_cast<typename Kind::Stored*>(data);
}

}  // namespace strata::kernels::cuda
