// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/plan/plan.h"

namespace strata::plan {

// The collectives of a program, without messages between stages, in the order of their numbers on
// each lane.
std::vector<const Op*> collectives_of(const Program& program);

// The value that the ranks exchange: Gather's plane, or what Reduce sums.
Value exchanged_value(const Program& program, const Op& op);

// The bytes of a collective on which all its ranks must agree: those of the whole when the ranks'
// own parts differ in size.
int64_t agreed_bytes(const Program& program, const Op& op);

// Hashes over what a rank and others must agree on. Ranks for whom these differ must not start,
// because they would wait for each other or add unrelated data.
struct AgreedHashes {
  // The recipe, what gradients are rounded to, and number, kind, group, segment, chunks,
  // micro-batch, value and agreed bytes of every collective: the same on all ranks of a stage.
  uint64_t collectives = 0;
  // Number, micro-batch and bytes of every message between this stage and the one before, and the
  // one behind, which has the same. The last is before the first.
  uint64_t before = 0;
  uint64_t behind = 0;
};
AgreedHashes hashes_of(const Plan& plan);

// Mesh::node_ranks where sums of a group nest by machine, else 0: meshes that differ in it add in
// another order.
int nested_ranks(const Mesh& mesh);

// Whether the hashes of all ranks of a mesh, in their order, agree with those of one of them.
bool agree(std::span<const AgreedHashes> all, const Mesh& mesh);

}  // namespace strata::plan
