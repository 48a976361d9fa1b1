// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "engine/plan/op.h"

// What each kind of op must read and write: all that planner, verifier and executor share.
namespace strata::plan {

// How often a kind of value appears among the reads or writes of an op.
enum class Need : uint8_t { kNone, kOptional, kOne, kSome };

struct ValueNeed {
  ValueKind kind;
  Need read;
  Need write;
};

// `lanes` is a bit set of Lane. Values that `values` does not list must not appear.
struct OpContract {
  OpKind kind;
  const char* name;
  uint32_t lanes;
  bool may_be_predicated;
  std::span<const ValueNeed> values;
};

const OpContract& contract_of(OpKind kind);

}  // namespace strata::plan
