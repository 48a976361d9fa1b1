// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/plan.h"

namespace strata::plan {

// The collectives of a program, in the order of their numbers.
std::vector<const Op*> collectives_of(const Program& program);

// The value that the ranks exchange: Gather's plane, or what Reduce sums.
Value exchanged_value(const Program& program, const Op& op);

// The bytes of a collective on which all its ranks must agree: those of the whole when the ranks'
// own parts differ in size.
int64_t agreed_bytes(const Program& program, const Op& op);

// A hash of number, kind, group, segment, chunks, micro-batch, value and agreed bytes of every
// collective of a plan. Ranks whose hashes differ must not start, because they would wait for each
// other or add unrelated data.
uint64_t collectives_hash(const Plan& plan);

}  // namespace strata::plan
