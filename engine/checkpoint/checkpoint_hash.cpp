// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/checkpoint_hash.h"

#include <algorithm>
#include <bit>

#include "engine/base/dtype.h"
#include "engine/checkpoint/checkpoint_slices.h"
#include "io/checksum.h"

namespace strata::checkpoint {
namespace {

// Odd numbers without a pattern in their bits.
constexpr uint64_t kIndexFactor = 0x9e3779b97f4a7c15;
constexpr uint64_t kKeyFactor = 0xd6e8feb86659fd93;
constexpr uint64_t kExpAvgFactor = 0xc2b2ae3d27d4eb4f;
constexpr uint64_t kExpAvgSqFactor = 0x165667b19e3779f9;

// Odd, so that every change of one element changes the sum.
uint64_t key_of(uint64_t index) {
  index ^= index >> 32;
  index *= kKeyFactor;
  return (index ^ index >> 29) | 1;
}

template <typename Master>
uint64_t sum_of(uint64_t index, const float* exp_avg, const float* exp_avg_sq, int64_t count,
                const Master& master) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i, index += kIndexFactor) {
    const uint64_t bits = std::bit_cast<uint32_t>(master(i)) +
                          kExpAvgFactor * std::bit_cast<uint32_t>(exp_avg[i]) +
                          kExpAvgSqFactor * std::bit_cast<uint32_t>(exp_avg_sq[i]);
    sum += key_of(index) * bits;
  }
  return sum;
}

}  // namespace

StateHash::StateHash(const model::ModelSpec& spec) : spec_(spec) {
  for (const model::Segment& segment : spec.segments) {
    std::vector<uint64_t>& seeds = seeds_.emplace_back();
    for (const model::Parameter& parameter : segment.parameters) {
      seeds.push_back(io::checksum_block(parameter.name.data(), parameter.name.size(), 0, 0));
    }
  }
}

void StateHash::write(const exec::ChunkState& chunk) {
  const auto& parameters = spec_.segments[chunk.segment].parameters;
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (is_stored(spec_, parameters[p])) add(chunk, parameters[p], seeds_[chunk.segment][p]);
  }
}

void StateHash::add(const exec::ChunkState& chunk, const model::Parameter& parameter,
                    uint64_t seed) {
  const int64_t end =
      std::min(parameter.offset + parameter.numel, chunk.state_first + chunk.state_count);
  int64_t run = 0;
  for (int64_t at = std::max(parameter.offset, chunk.state_first); at < end; at += run) {
    const int64_t element = at - parameter.offset;
    run = model::whole_run(parameter, element, end - at);
    const auto index = static_cast<uint64_t>(model::whole_index(parameter, element));
    const int64_t state = at - chunk.state_first;
    const auto sum = [&](const auto& master) {
      return sum_of(seed + index * kIndexFactor, chunk.exp_avg + state, chunk.exp_avg_sq + state,
                    run, master);
    };
    const WeightPlanes planes = chunk.planes_at(at, true);
    if (planes.master) {
      value_ += sum([master = planes.master](int64_t i) { return master[i]; });
    } else {
      value_ += sum(
          [high = planes.hi, low = planes.lo](int64_t i) { return join_master(high[i], low[i]); });
    }
  }
}

}  // namespace strata::checkpoint
