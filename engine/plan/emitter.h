// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/plan/dependencies.h"
#include "engine/plan/plan.h"

namespace strata::plan {

// Writes a program op by op, in an order whose serial execution is correct; waits come from what
// the ops touch. Use: begin, then for each op open, read/write, close.
class Emitter {
 public:
  // About as many ops and accesses are expected.
  void begin(ProgramName name, size_t ops, size_t accesses);
  // Of a program that may follow itself without a pause, ops also wait for what of the one before
  // must be over.
  Program finish(bool follows_itself);

  // The reference is good until close().
  Op& open(OpKind kind, Lane lane, int segment);
  void access(const Access& access);  // nothing where it has no bytes
  void read(Arena arena, int64_t offset, int64_t bytes, int64_t first, const Value& value);
  void write(Arena arena, int64_t offset, int64_t bytes, int64_t first, const Value& value);
  void close();

 private:
  void add_waits();

  Program program_;
  Dependencies dependencies_;
};

}  // namespace strata::plan
