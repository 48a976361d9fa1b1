// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

#include "engine/base/check.h"
#include "engine/base/dtype.h"
#include "engine/base/payload.h"
#include "engine/comm/mx_int8.h"

namespace strata::comm {

template <typename To, typename From>
To converted(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (std::is_same_v<To, uint16_t>) {
    return nearest_bf16(x);
  } else if constexpr (std::is_same_v<To, MxInt8Block>) {
    return to_mx_int8(x);
  } else if constexpr (std::is_same_v<To, FloatBlock>) {
    return from_mx_int8(x);
  } else {
    return from_bf16(x);
  }
}

// to[i] = value(i), in stretches of a fixed length, of which compilers make vector instructions.
template <typename To, typename Value>
void fill_with(To* to, int64_t count, const Value& value) {
  constexpr int64_t kWidth = 16;
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    std::array<To, kWidth> stretch;
    for (int64_t k = 0; k < kWidth; ++k) stretch[static_cast<size_t>(k)] = value(i + k);
    std::copy(stretch.begin(), stretch.end(), to + i);
  }
  for (; i < count; ++i) to[i] = value(i);
}

template <typename To, typename From>
void convert(const From* from, To* to, int64_t count) {
  if constexpr (std::is_same_v<To, From>) {
    std::copy_n(from, count, to);
  } else {
    fill_with(to, count, [&](int64_t i) { return converted<To>(from[i]); });
  }
}

// Replaces values by what others receive of them.
inline void round_to(Payload payload, float* values, int64_t count) {
  STRATA_CHECK(count % block_of(payload) == 0);
  if (payload == Payload::kBF16) {
    for (int64_t i = 0; i < count; ++i) values[i] = from_bf16(nearest_bf16(values[i]));
  } else if (payload == Payload::kMxInt8) {
    auto* blocks = reinterpret_cast<FloatBlock*>(values);
    for (int64_t i = 0; i < count / kMxBlock; ++i) blocks[i] = from_mx_int8(to_mx_int8(blocks[i]));
  }
}

// How sources nest: `near` of them at a time are of one machine, whose sums are then added, after
// they have been rounded as the payload says.
struct SumNesting {
  size_t near = 0;  // 0: all
  Payload payload = Payload::kF32;
};

// Sums that every group computes the same way:  out[i] = ((x0[i] + x1[i]) + x2[i]) + ...
// and of machines that have summed theirs.
//
// Accumulates in T, in the order of `sources`, which are of T or of what T is sent as, as outputs
// are. Each element is written to all of `outputs`; an output may be one of the sources. Bits do
// not depend on how a range is split into calls.
template <typename T, typename Source, typename Output>
void ordered_sum(std::span<const Source* const> sources, std::span<Output* const> outputs,
                 int64_t count, const SumNesting& nesting = {}) {
  constexpr auto kBlock = static_cast<int64_t>(8192 / sizeof(T));  // stays in the nearest cache
  const size_t near = nesting.near > 0 ? nesting.near : sources.size();
  std::array<T, kBlock> sum, more;
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t n = std::min(kBlock, count - first);
    for (size_t machine = 0; machine < sources.size(); machine += near) {
      T* const own = machine == 0 ? sum.data() : more.data();
      convert(sources[machine] + first, own, n);
      for (const Source* source : sources.subspan(machine + 1, near - 1)) {
        const Source* x = source + first;
        fill_with(own, n, [&](int64_t i) { return own[i] + converted<T>(x[i]); });
      }
      if constexpr (std::is_same_v<T, float>) {
        round_to(nesting.payload, own, n);
      }
      if (machine == 0) continue;
      fill_with(sum.data(), n, [&](int64_t i) {
        return sum[static_cast<size_t>(i)] + more[static_cast<size_t>(i)];
      });
    }
    for (Output* output : outputs) convert(sum.data(), output + first, n);
  }
}

}  // namespace strata::comm
