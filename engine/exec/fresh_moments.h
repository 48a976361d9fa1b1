// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "engine/plan/plan.h"

namespace strata::exec {

// By op of `load`: whether it writes Adam moments where no other op of the program writes. New
// arenas are zero, so such moments are already zero before the op.
std::vector<bool> ops_with_fresh_moments(const plan::Program& load);

}  // namespace strata::exec
