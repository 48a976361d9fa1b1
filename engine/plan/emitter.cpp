// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/emitter.h"

namespace strata::plan {

void Emitter::begin(ProgramName name, const TwoSides& sides, size_t ops, size_t accesses) {
  sides_ = sides;
  program_ = Program{};
  program_.name = name;
  next_number_ = 0;
  program_.ops.reserve(ops);
  program_.waits.reserve(2 * ops);
  program_.accesses.reserve(accesses);
}

// For a program that follows itself, emits a second copy and keeps its waits, because the first
// copy has no predecessor to wait for.
Program Emitter::finish(bool follows_itself) {
  std::array<size_t, kLaneCount> expected;
  for (int l = 0; l < kLaneCount; ++l) {
    expected[l] = (follows_itself ? 2 : 1) * program_.lanes[l].size();
  }
  dependencies_.clear(expected);
  add_waits();
  if (follows_itself) {
    dependencies_.start_copy();
    add_waits();
  }
  return std::move(program_);
}

void Emitter::add_waits() {
  program_.waits.clear();
  for (Op& op : program_.ops) {
    op.wait_begin = static_cast<uint32_t>(program_.waits.size());
    dependencies_.add(op.lane, program_.accesses_of(op), program_.waits);
    op.wait_end = static_cast<uint32_t>(program_.waits.size());
  }
}

Op& Emitter::open(OpKind kind, Lane lane, int segment) {
  Op op;
  op.kind = kind;
  op.lane = lane;
  op.segment = segment;
  op.access_begin = static_cast<uint32_t>(program_.accesses.size());
  program_.ops.push_back(op);
  return program_.ops.back();
}

void Emitter::access(Access access) {
  if (access.bytes == 0) return;
  const bool updated = access.arena == Arena::kNvme && access.value.generation != Generation::kOld;
  if (updated && sides_.contain(access.offset)) access.side = Side::kOther;
  program_.accesses.push_back(access);
}

void Emitter::read(Arena arena, int64_t offset, int64_t bytes, int64_t first, const Value& value) {
  access({Mode::kRead, arena, offset, bytes, first, value});
}

void Emitter::write(Arena arena, int64_t offset, int64_t bytes, int64_t first, const Value& value) {
  access({Mode::kWrite, arena, offset, bytes, first, value});
}

void Emitter::close() {
  Op& op = program_.ops.back();
  op.access_end = static_cast<uint32_t>(program_.accesses.size());
  auto& lane = program_.lanes[static_cast<size_t>(op.lane)];
  if (is_comm_lane(op.lane) && op.number < 0) op.number = next_number_++;
  const auto index = static_cast<uint32_t>(program_.ops.size() - 1);
  lane.push_back(index);
}

}  // namespace strata::plan
