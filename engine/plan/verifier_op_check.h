// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/plan/verifier_parts.h"

namespace strata::plan::verifying {

// An op of a segment, with what its accesses must be.
class OpCheck {
 public:
  OpCheck(const Facts& facts, const Program& program, int64_t index, Reporter& reporter)
      : facts_(facts),
        program_(program),
        op_(program.ops[index]),
        index_(index),
        reporter_(reporter),
        accesses_(program.accesses_of(op_)),
        segment_(facts.segment(op_.segment)) {}

 protected:
  void bad(const char* kind, std::string text) {
    reporter_.add(kind, program_.name, index_,
                  fmt::format("{} of {}: {}", contract_of(op_.kind).name, segment_.name, text));
  }

  // Whether the accesses that match are exactly the bytes [0, bytes) of one contiguous slot.
  template <class Match>
  bool whole(Mode mode, int64_t bytes, Match match) {
    std::vector<Range> ranges;
    int64_t base = -1;
    for (const Access& access : accesses_) {
      if (access.mode != mode || !match(access.value)) continue;
      if (!ranges.empty() && access.offset - access.first != base) return false;
      base = access.offset - access.first;
      ranges.push_back({access.first, access.first + access.bytes});
    }
    return join(ranges) && ranges.size() == 1 && ranges[0] == Range{0, bytes};
  }

  bool whole(Mode mode, const Value& value, int64_t bytes) {
    return whole(mode, bytes, [&](const Value& other) { return other == value; });
  }

  Value boundary(ValueKind kind, int segment) const {
    Value value;
    value.kind = kind;
    value.segment = segment;
    value.index = op_.micro_batch;
    return value;
  }

  struct Tensor {
    Value value;
    bool needed;
  };

  // Every access of `kind` in `mode` must name one of the tensors, and have all of it.
  void check_tensors(Mode mode, ValueKind kind, const std::vector<Tensor>& tensors) {
    for (const Access& access : accesses_) {
      if (access.mode != mode || access.value.kind != kind) continue;
      const bool known = std::any_of(tensors.begin(), tensors.end(), [&](const Tensor& tensor) {
        return tensor.value == access.value;
      });
      if (known) continue;
      return bad("value", fmt::format("names {}, which is not among its tensors",
                                      describe(facts_, access.value)));
    }
    for (const Tensor& tensor : tensors) {
      const bool any = std::any_of(accesses_.begin(), accesses_.end(), [&](const Access& access) {
        return access.mode == mode && access.value == tensor.value;
      });
      if (!any && !tensor.needed) continue;
      const int64_t bytes = facts_.extent(tensor.value);
      if (!any || (bytes >= 0 && !whole(mode, tensor.value, bytes))) {
        bad("coverage", fmt::format("does not have all of {}", describe(facts_, tensor.value)));
      }
    }
  }

  // The op must have exactly these bytes of such a value, or none.
  void check_shared(Mode mode, ValueKind kind, int reduced, bool needed, const Range& range) {
    Value value = boundary(kind, op_.segment);
    value.reduced = static_cast<uint8_t>(reduced);
    int known = 0, count = 0;
    for (const Access& access : accesses_) {
      if (access.mode != mode || access.value.kind != kind) continue;
      ++count;
      known += access.value == value && access.first == range.begin &&
               access.first + access.bytes == range.end;
    }
    if (count == (needed ? 1 : 0) && known == count) return;
    bad("value", fmt::format("{} {} {}", needed ? "does not have exactly" : "has no use for",
                             describe(facts_, value), describe(range)));
  }

  const Facts& facts_;
  const Program& program_;
  const Op& op_;
  const int64_t index_;
  Reporter& reporter_;
  const std::span<const Access> accesses_;
  const model::Segment& segment_;
};

}  // namespace strata::plan::verifying
