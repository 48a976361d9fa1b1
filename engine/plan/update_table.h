// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "engine/base/check.h"
#include "engine/plan/op.h"

// When and how chunks are updated: one row for each mode, used by builder, verifier and executor.
namespace strata::plan {

enum class OptimizerMode : uint8_t { kDeferred, kInBackward };

struct UpdateRule {
  OptimizerMode mode;
  const char* name;
  // Gradients wait until the decision about all of them: then an update is done before the next use
  // of its weights, or in a drain. Otherwise it is done in the backward.
  bool waits;
  Predicate predicate;  // of the ops of an update
  Generation weights;   // that forward and backward of a step read
  Generation next;      // that an update of kOld writes, and that all planes have after a step
};

inline constexpr std::array<UpdateRule, 2> kUpdateTable = {{
    {OptimizerMode::kDeferred, "deferred", true, Predicate::kPending, Generation::kUpdated,
     Generation::kUpdated},
    {OptimizerMode::kInBackward, "in-backward", false, Predicate::kAlways, Generation::kOld,
     Generation::kNew},
}};

constexpr const UpdateRule& update_rule(OptimizerMode mode) {
  const UpdateRule& rule = kUpdateTable[static_cast<size_t>(mode)];
  STRATA_CHECK(rule.mode == mode);
  return rule;
}

}  // namespace strata::plan
