// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/checkpoint_hash.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/dtype.h"
#include "io/checksum.h"

namespace strata::checkpoint {
namespace {

// Every parameter and every shard starts at a multiple of this in its segment, so a block is never
// split.
constexpr int64_t kHashElements = 64;

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
    if (!parameters[p].frozen) add(chunk, parameters[p], seeds_[chunk.segment][p]);
  }
}

void StateHash::add(const exec::ChunkState& chunk, const model::Parameter& parameter,
                    uint64_t seed) {
  const int64_t first = std::max(parameter.offset, chunk.state_first);
  const int64_t last =
      std::min(parameter.offset + parameter.numel, chunk.state_first + chunk.state_count);
  if (first >= last) return;
  STRATA_CHECK((first - parameter.offset) % kHashElements == 0);
  STRATA_CHECK((last - parameter.offset) % kHashElements == 0 ||
               last == parameter.offset + parameter.numel);
  for (int64_t at = first; at < last; at += kHashElements) {
    const int64_t count = std::min(kHashElements, last - at);
    const uint64_t bytes = static_cast<uint64_t>(count) * sizeof(float);
    const uint64_t block = static_cast<uint64_t>((at - parameter.offset) / kHashElements);
    const int64_t state = at - chunk.state_first;
    float master[kHashElements];
    for (int64_t i = 0; i < count; ++i) {
      const int64_t hi = at + i - chunk.hi_first;
      master[i] =
          chunk.fp32 ? static_cast<const float*>(chunk.hi)[hi]
                     : join_master(static_cast<const uint16_t*>(chunk.hi)[hi], chunk.lo[state + i]);
    }
    value_ += io::checksum_block(master, bytes, seed, block);
    value_ += io::checksum_block(chunk.exp_avg + state, bytes, seed + 1, block);
    value_ += io::checksum_block(chunk.exp_avg_sq + state, bytes, seed + 2, block);
  }
}

}  // namespace strata::checkpoint
