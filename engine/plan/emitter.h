// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/plan/dependencies.h"
#include "engine/plan/plan.h"

namespace strata::plan {

// Emits a program op by op, in an order whose serial execution is correct; derives the waits from
// what the ops touch. Use: begin, then for each op open, read/write, close.
class Emitter {
 public:
  // `ops` and `accesses` are the expected numbers, for reserving memory. A value that an update
  // made is on the other side of its extent on NVMe, if that has two.
  void begin(ProgramName name, const TwoSides& sides, size_t ops, size_t accesses);
  // If the program may follow itself without a pause, its ops also wait for ops of the previous
  // copy.
  Program finish(bool follows_itself);

  // Ops on lanes of is_comm_lane() that have no number yet get numbers from here on, ascending.
  void number_from(int64_t number) { next_number_ = number; }

  // The reference is valid until close().
  Op& open(OpKind kind, Lane lane, int segment);
  void access(Access access);  // ignores an access without bytes
  void read(Arena arena, int64_t offset, int64_t bytes, int64_t first, const Value& value);
  void write(Arena arena, int64_t offset, int64_t bytes, int64_t first, const Value& value);
  void close();

 private:
  void add_waits();

  TwoSides sides_;
  Program program_;
  Dependencies dependencies_;
  int64_t next_number_ = 0;
};

}  // namespace strata::plan
