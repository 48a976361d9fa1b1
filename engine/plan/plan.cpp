// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/plan.h"

namespace strata::plan {

const char* name_of(ProgramName name) {
  constexpr std::array<const char*, kProgramCount> kNames = {"load", "step",     "drain",
                                                             "eval", "generate", "checkpoint"};
  return kNames[static_cast<size_t>(name)];
}

}  // namespace strata::plan
