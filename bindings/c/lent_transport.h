// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bindings/c/strata.h"
#include "engine/engine.h"

namespace strata::c {

// Where a store meets its other ranks. Throws Error (kConfig) for structs that cannot be.
RankPlace place_of(const strata_ranks& given);

}  // namespace strata::c
