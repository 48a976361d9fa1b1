// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "engine/plan/op.h"

// What each kind of op must read and write. Planner, verifier and executor share this table.
namespace strata::plan {

// How many different values of a kind appear among the reads or writes of an op; one value may take
// several accesses. kOptional: at most one. kSome: at least one. kAny: any number.
enum class Need : uint8_t { kNone, kOptional, kOne, kSome, kAny };

struct ValueNeed {
  ValueKind kind;
  Need read;
  Need write;
};

// `lanes` is a bit set of Lane. An op must not have values that `values` does not list. A transfer
// moves at least one value besides the decision that it may read.
struct OpContract {
  OpKind kind;
  const char* name;
  uint32_t lanes;
  bool may_be_predicated;
  std::span<const ValueNeed> values;
};

const OpContract& contract_of(OpKind kind);

const char* name_of(Lane lane);

}  // namespace strata::plan
