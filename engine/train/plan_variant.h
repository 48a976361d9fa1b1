// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/train/plan_compare.h"

namespace strata::train {

// A way to run that is not planned yet.
struct Variant {
  Compared compared;
  config::Options options;
  RunFacts facts;
};

// Plans it: sets the report, or why it does not fit. Throws Error for options that no plan can
// have.
void plan_variant(const model::ModelSpec& spec, Variant& variant);

}  // namespace strata::train
