// SPDX-License-Identifier: Apache-2.0
#include "engine/model/spec.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "engine/base/check.h"
#include "engine/base/units.h"

namespace strata::model {
namespace {

// Cache lines of f32 and of bf16, so that every matrix starts aligned in every plane.
constexpr int64_t kParameterAlignment = 64;
// The part of a rank is a multiple of a page in every plane.
constexpr int64_t kShardElements = 4096;
// Where parameters of another kind follow, they start on a checksum block of the volume.
constexpr int64_t kNextElements = 32768;

template <typename Picks>
int64_t place(Segment& segment, int64_t first, int64_t multiple, Picks picks) {
  int64_t offset = first;
  for (Parameter& parameter : segment.parameters) {
    if (!picks(parameter)) continue;
    parameter.offset = offset;
    offset += round_up(std::max(parameter.numel, parameter.room), kParameterAlignment);
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

bool has_whole_rows(const Parameter& parameter) {
  const std::vector<int64_t>& stored = parameter.stored.shape;
  const int64_t row =
      parameter.stored.transposed
          ? stored[0]
          : std::accumulate(stored.begin() + 1, stored.end(), int64_t{1}, std::multiplies<>());
  return parameter.numel == parameter.shape[0] * row;
}

int64_t stored_index(const Parameter& parameter, int64_t element) {
  const Storage& stored = parameter.stored;
  STRATA_CHECK(!stored.tensor.empty() && element >= 0 && element < parameter.numel);
  const int64_t inputs = parameter.numel / parameter.shape[0];
  const int64_t output = stored.first + element / inputs;
  const int64_t input = stored.first_input + element % inputs;
  if (stored.transposed) return input * stored.shape[1] + output;
  return output * std::accumulate(stored.shape.begin() + 1, stored.shape.end(), int64_t{1},
                                  std::multiplies<>()) +
         input;
}

namespace {

int64_t inputs_of(const Parameter& parameter) {
  return parameter.numel / parameter.shape[0];
}

bool has_cut_rows(const Parameter& parameter) {
  return parameter.whole_inputs > 0 && parameter.whole_inputs != inputs_of(parameter);
}

}  // namespace

int64_t whole_index(const Parameter& parameter, int64_t element) {
  if (!has_cut_rows(parameter)) return parameter.whole_first + element;
  const int64_t inputs = inputs_of(parameter);
  return parameter.whole_first + element / inputs * parameter.whole_inputs + element % inputs;
}

int64_t whole_run(const Parameter& parameter, int64_t element, int64_t count) {
  if (!has_cut_rows(parameter)) return count;
  const int64_t inputs = inputs_of(parameter);
  return std::min(count, inputs - element % inputs);
}

void assign_offsets(ModelSpec& spec, int shard_count) {
  STRATA_CHECK(shard_count >= 1);
  const int64_t multiple = kShardElements * shard_count;
  for (Segment& segment : spec.segments) {
    const auto& all = segment.parameters;
    const auto sliced = [](const Parameter& one) { return !one.frozen && !one.whole; };
    const auto whole = [](const Parameter& one) { return !one.frozen && one.whole; };
    const auto frozen = [](const Parameter& one) { return one.frozen; };
    const int stretches = std::ranges::any_of(all, sliced) + std::ranges::any_of(all, whole) +
                          std::ranges::any_of(all, frozen);
    const int64_t next = stretches > 1 ? kNextElements * shard_count : multiple;
    segment.trainable_numel = place(segment, 0, next, sliced);
    segment.whole_numel = place(segment, segment.trainable_numel, next, whole);
    segment.trainable_numel += segment.whole_numel;
    segment.frozen_numel = place(segment, segment.trainable_numel, multiple, frozen);
  }
}

}  // namespace strata::model
