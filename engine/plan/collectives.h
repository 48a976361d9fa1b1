// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/plan/plan.h"

namespace strata::plan {

// The bytes of a collective that all its ranks must agree on: of the whole, where one rank's own
// part differs from another's.
int64_t agreed_bytes(const Program& program, const Op& op);

// Over number, kind, group, segment and agreed bytes of every collective of a plan. Ranks whose
// hashes differ must not start: they would wait for each other, or add what does not belong
// together.
uint64_t collectives_hash(const Plan& plan);

}  // namespace strata::plan
