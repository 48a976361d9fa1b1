// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/plan.h"

namespace strata::plan {

const char* name_of(ProgramName name) {
  constexpr const char* kNames[] = {"load", "step", "drain", "eval", "generate", "checkpoint"};
  static_assert(std::size(kNames) == kProgramCount);
  return kNames[static_cast<size_t>(name)];
}

}  // namespace strata::plan
