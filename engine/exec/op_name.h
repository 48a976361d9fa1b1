// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <array>

#include "engine/model/spec.h"
#include "engine/plan/op_contract.h"

namespace strata::exec {

// An op in messages and in a profiler's ranges, such as "backward b0.attn": its kind, and the
// segment that it works for. Nothing is allocated; what is too long is cut.
using OpName = std::array<char, 64>;

inline OpName name_of(const plan::Op& op, const model::ModelSpec& spec) {
  OpName name = {};
  const char* kind = plan::contract_of(op.kind).name;
  if (op.segment < 0) {
    fmt::format_to_n(name.data(), name.size() - 1, "{}", kind);
  } else {
    fmt::format_to_n(name.data(), name.size() - 1, "{} {}", kind,
                     spec.segments[static_cast<size_t>(op.segment)].name);
  }
  return name;
}

}  // namespace strata::exec
