// SPDX-License-Identifier: Apache-2.0
#include "kernels/convert.h"

#include <bit>
#include <cstring>

#include "kernels/ref/ops.h"
#include "kernels/typed.h"

namespace strata::kernels::ref {
namespace {

// Exact: 2^112 moves a half's exponent bias to a float's, and normalizes subnormals on the way.
float from_f16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fffu) << 13;
  if (magnitude >= 0x0f800000u) return std::bit_cast<float>(sign | magnitude | 0x7f800000u);
  const float value = std::bit_cast<float>(magnitude) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

// Exact, by the same way: 2^120 is between the biases 7 and 127. The format has no infinities.
float from_f8_e4m3(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80u) << 24;
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fu) << 20;
  if (magnitude == 0x07f00000u) return std::bit_cast<float>(sign | 0x7fc00000u);
  const float value = std::bit_cast<float>(magnitude) * 0x1p120f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

// To nearest, ties to even.
uint16_t to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and more
  if (magnitude < 0x38800000u) {  // below 2^-14: the sum's last bit is 2^-24, the least half
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u);
  return static_cast<uint16_t>(sign | rounded >> 13);
}

uint16_t read_u16(const void* src, int64_t index) {
  uint16_t value;
  std::memcpy(&value, static_cast<const char*>(src) + 2 * index, 2);
  return value;
}

float read(DType type, const void* src, int64_t index) {
  if (type == DType::kF8E4M3) return from_f8_e4m3(static_cast<const uint8_t*>(src)[index]);
  if (type != DType::kF32) {
    const uint16_t bits = read_u16(src, index);
    return type == DType::kBF16 ? from_bf16(bits) : from_f16(bits);
  }
  float value;
  std::memcpy(&value, static_cast<const char*>(src) + 4 * index, 4);
  return value;
}

}  // namespace

void convert_in(const ConvertIn& op) {
  STRATA_CHECK((op.master != nullptr) != (op.hi != nullptr) && (op.hi || !op.lo));
  for (int64_t i = 0; i < op.count; ++i) {
    const float value = read(op.dtype, op.src, i);
    if (op.master) {
      op.master[i] = value;
    } else if (op.lo) {
      const SplitMaster split = split_master(value);
      op.hi[i] = split.hi;
      op.lo[i] = split.lo;
    } else {
      op.hi[i] = op.dtype == DType::kBF16 ? read_u16(op.src, i) : to_bf16(value);
    }
  }
}

void convert_out(const ConvertOut& op) {
  STRATA_CHECK((op.master != nullptr) != (op.hi != nullptr) && (op.hi || !op.lo));
  STRATA_CHECK(op.dtype != DType::kF8E4M3);
  for (int64_t i = 0; i < op.count; ++i) {
    if (op.dtype != DType::kBF16) {
      const float value = op.master ? op.master[i]
                          : op.lo   ? join_master(op.hi[i], op.lo[i])
                                    : from_bf16(op.hi[i]);
      const uint16_t half = to_f16(value);
      if (op.dtype == DType::kF32) {
        std::memcpy(static_cast<char*>(op.dst) + 4 * i, &value, 4);
      } else {
        std::memcpy(static_cast<char*>(op.dst) + 2 * i, &half, 2);
      }
    } else {
      const uint16_t bits = op.master ? to_bf16(op.master[i]) : op.hi[i];
      std::memcpy(static_cast<char*>(op.dst) + 2 * i, &bits, 2);
    }
  }
}

}  // namespace strata::kernels::ref
