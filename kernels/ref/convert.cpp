// SPDX-License-Identifier: Apache-2.0
#include "kernels/convert.h"

#include <bit>
#include <cstring>

#include "kernels/ref/ops.h"
#include "kernels/typed.h"

namespace strata::kernels::ref {
namespace {

// Exact as from_f16() is: 2^120 is the difference of the biases 7 and 127. The format has no
// infinities.
float from_f8_e4m3(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80u) << 24;
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fu) << 20;
  if (magnitude == 0x07f00000u) return std::bit_cast<float>(sign | 0x7fc00000u);
  const float value = std::bit_cast<float>(magnitude) * 0x1p120f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

template <typename T>
T read_bits(const void* src, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(src) + index * static_cast<int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

// Element readers by type, so that each loop below is compiled for one type.
struct ReadF32 {
  float operator()(const void* src, int64_t i) const { return read_bits<float>(src, i); }
};
struct ReadBf16 {
  float operator()(const void* src, int64_t i) const {
    return from_bf16(read_bits<uint16_t>(src, i));
  }
};
struct ReadF16 {
  float operator()(const void* src, int64_t i) const {
    return from_f16(read_bits<uint16_t>(src, i));
  }
};
struct ReadF8 {
  float operator()(const void* src, int64_t i) const {
    return from_f8_e4m3(read_bits<uint8_t>(src, i));
  }
};

template <typename Read>
void read_all(const ConvertIn& op, const Read& read) {
  if (op.master) {
    for (int64_t i = 0; i < op.count; ++i) op.master[i] = read(op.src, i);
    for (int64_t i = 0; op.hi && i < op.count; ++i) op.hi[i] = to_f16(op.master[i]);
  } else if (op.lo) {
    for (int64_t i = 0; i < op.count; ++i) {
      const SplitMaster split = split_master(read(op.src, i));
      op.hi[i] = split.hi;
      op.lo[i] = split.lo;
    }
  } else {
    for (int64_t i = 0; i < op.count; ++i) store(op.weights, op.hi, i, read(op.src, i));
  }
}

template <typename Write>
void write_all(const ConvertOut& op, const Write& write) {
  if (op.master) {
    for (int64_t i = 0; i < op.count; ++i) write(i, op.master[i]);
  } else if (op.lo) {
    for (int64_t i = 0; i < op.count; ++i) write(i, join_master(op.hi[i], op.lo[i]));
  } else {
    for (int64_t i = 0; i < op.count; ++i) write(i, load(op.weights, op.hi, i));
  }
}

template <uint16_t (*kRound)(float)>
void write_halves(const ConvertOut& op) {
  write_all(op, [&](int64_t i, float value) {
    const uint16_t half = kRound(value);
    std::memcpy(static_cast<char*>(op.dst) + 2 * i, &half, 2);
  });
}

template <typename Op>
void check_planes(const Op& op) {
  STRATA_CHECK(op.lo ? op.hi && !op.master : op.hi || op.master);
  STRATA_CHECK(op.weights == DType::kBF16 || op.weights == DType::kF16);
}

// Whether the bits of the file are those of hi alone.
template <typename Op>
bool is_copy(const Op& op) {
  return op.hi && !op.lo && !op.master && op.dtype == op.weights;
}

}  // namespace

void convert_in(const ConvertIn& op) {
  check_planes(op);
  if (is_copy(op)) {
    std::memcpy(op.hi, op.src, static_cast<size_t>(op.count) * 2);
    return;
  }
  switch (op.dtype) {
    case DType::kF32:
      return read_all(op, ReadF32());
    case DType::kBF16:
      return read_all(op, ReadBf16());
    case DType::kF16:
      return read_all(op, ReadF16());
    case DType::kF8E4M3:
      return read_all(op, ReadF8());
  }
}

void convert_out(const ConvertOut& op) {
  check_planes(op);
  STRATA_CHECK(op.dtype != DType::kF8E4M3);
  const bool is_upper_half = op.lo && op.dtype == DType::kBF16;  // of the master, the weight
  if (is_upper_half || is_copy(op)) {
    std::memcpy(op.dst, op.hi, static_cast<size_t>(op.count) * 2);
  } else if (op.dtype == DType::kF32) {
    write_all(op, [&](int64_t i, float value) {
      std::memcpy(static_cast<char*>(op.dst) + 4 * i, &value, 4);
    });
  } else if (op.dtype == DType::kF16) {
    write_halves<to_f16>(op);
  } else {
    write_halves<to_bf16>(op);
  }
}

}  // namespace strata::kernels::ref
