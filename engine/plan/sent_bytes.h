// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/model/spec.h"
#include "engine/plan/plan.h"

namespace strata::plan {

// Bytes of values that a rank sends to others in one run of a program, as comm::Group::sent()
// counts them. Of a group of N ranks, gathering V bytes sends V (N - 1) / N, and so does a sum of
// which each rank keeps its part; one that every rank keeps sends twice that. Where pieces do not
// divide evenly, ranks differ by some elements. Values of a device that are larger than the bounce
// buffer are cut, which changes that remainder.
int64_t sent_bytes(const Plan& plan, const model::ModelSpec& spec, ProgramName name);

}  // namespace strata::plan
