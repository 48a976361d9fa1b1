// SPDX-License-Identifier: Apache-2.0
#include "engine/model/spec.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/units.h"

namespace strata::model {
namespace {

// Cache lines of f32 and of bf16, so that every matrix starts aligned in every plane.
constexpr int64_t kParameterAlignment = 64;
// The part of a rank is a multiple of a page in every plane.
constexpr int64_t kShardElements = 4096;
// Where frozen parameters follow trainable ones they start on a checksum block of the volume.
constexpr int64_t kMixedElements = 32768;

bool has(const Segment& segment, bool frozen) {
  return std::any_of(segment.parameters.begin(), segment.parameters.end(),
                     [&](const Parameter& parameter) { return parameter.frozen == frozen; });
}

int64_t place(Segment& segment, bool frozen, int64_t first, int64_t multiple) {
  int64_t offset = first;
  for (Parameter& parameter : segment.parameters) {
    if (parameter.frozen != frozen) continue;
    parameter.offset = offset;
    offset += round_up(parameter.numel, kParameterAlignment);
  }
  return round_up(offset - first, multiple);
}

}  // namespace

int64_t ModelSpec::parameter_count() const {
  int64_t count = 0;
  for (const Segment& segment : segments) {
    for (const Parameter& parameter : segment.parameters) count += parameter.numel;
  }
  return count;
}

int64_t stored_index(const Parameter& parameter, int64_t element) {
  const Storage& stored = parameter.stored;
  STRATA_CHECK(!stored.tensor.empty() && element >= 0 && element < parameter.numel);
  const int64_t inputs = parameter.numel / parameter.shape[0];
  if (!stored.transposed) return stored.first * inputs + element;
  return element % inputs * stored.shape[1] + stored.first + element / inputs;
}

void assign_offsets(ModelSpec& spec, int shard_count) {
  STRATA_CHECK(shard_count >= 1);
  const int64_t multiple = kShardElements * shard_count;
  for (Segment& segment : spec.segments) {
    const bool mixed = has(segment, true) && has(segment, false);
    segment.trainable_numel =
        place(segment, false, 0, mixed ? kMixedElements * shard_count : multiple);
    segment.frozen_numel = place(segment, true, segment.trainable_numel, multiple);
  }
}

}  // namespace strata::model
