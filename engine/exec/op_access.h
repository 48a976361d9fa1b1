// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "engine/base/check.h"
#include "engine/plan/plan.h"

// Finds what an op reads and writes.
namespace strata::exec {

// The first access of a mode and kind, and of `segment` unless that is negative. Null when there is
// none.
inline const plan::Access* find_access(std::span<const plan::Access> accesses, plan::Mode mode,
                                       plan::ValueKind kind, int segment = -1) {
  for (const plan::Access& access : accesses) {
    if (access.mode == mode && access.value.kind == kind &&
        (segment < 0 || access.value.segment == segment)) {
      return &access;
    }
  }
  return nullptr;
}

inline const plan::Access* find_plane(std::span<const plan::Access> accesses, plan::Mode mode,
                                      Plane plane) {
  for (const plan::Access& access : accesses) {
    if (access.mode == mode && access.value.kind == plan::ValueKind::kPlane &&
        access.value.plane == plane) {
      return &access;
    }
  }
  return nullptr;
}

// Calls function(read, write) for the pairs of reads and writes of an op that moves bytes. They are
// paired in order, without the decision that a predicate reads.
template <typename Function>
void for_each_move(std::span<const plan::Access> accesses, const Function& function) {
  size_t write = 0;
  for (const plan::Access& read : accesses) {
    const bool moves = read.value.kind != plan::ValueKind::kDecision;
    if (read.mode != plan::Mode::kRead || !moves) continue;
    while (accesses[write].mode != plan::Mode::kWrite) ++write;
    const plan::Access& to = accesses[write++];
    STRATA_CHECK(to.bytes == read.bytes);
    function(read, to);
  }
}

}  // namespace strata::exec
