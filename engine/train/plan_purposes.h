// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/plan/plan.h"

namespace strata::train {

// Memory or space under the name that plans show, for people and in JSON.
struct ShownPurpose {
  std::string name;
  std::string_view why;  // what it means; may be empty
  int64_t bytes = 0;
};

// What a plan's arena is used for: purposes of the ledger that have one name are one entry. The
// purpose with the most bytes is first.
std::vector<ShownPurpose> shown_purposes(const plan::Plan& plan, plan::Arena arena);

}  // namespace strata::train
