// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/model/architecture.h"
#include "engine/model/spec.h"

// A model of some megabytes, and the pieces in which a test reads or writes its weights.
namespace strata::model {

inline Architecture some_megabytes() {
  Architecture at;
  at.model_type = "llama";
  at.hidden = 320;
  at.heads = 5;
  at.kv_heads = 5;
  at.head_size = 64;
  at.feed_forward = 1403;  // rows end anywhere
  at.vocabulary = 7001;
  at.max_position = 256;
  at.layers = 2;
  return at;
}

// Elements of one parameter in a row.
struct Part {
  const Parameter* parameter;
  int64_t first;
  int64_t count;
};

// All weights, in the order of a segment's flat buffer.
inline std::vector<Part> parts_of(const ModelSpec& spec, int64_t step) {
  std::vector<Part> parts;
  for (const Segment& segment : spec.segments) {
    std::vector<const Parameter*> ordered;
    for (const Parameter& parameter : segment.parameters) ordered.push_back(&parameter);
    std::sort(ordered.begin(), ordered.end(),
              [](const Parameter* a, const Parameter* b) { return a->offset < b->offset; });
    for (const Parameter* parameter : ordered) {
      for (int64_t first = 0; first < parameter->numel; first += step)
        parts.push_back({parameter, first, std::min(step, parameter->numel - first)});
    }
  }
  return parts;
}

}  // namespace strata::model
