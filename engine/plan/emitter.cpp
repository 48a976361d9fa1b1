// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/emitter.h"

namespace strata::plan {

void Emitter::begin(ProgramName name) {
  program_ = Program{};
  program_.name = name;
  dependencies_ = Dependencies{};
}

void Emitter::start_copy() {
  const ProgramName name = program_.name;
  program_ = Program{};
  program_.name = name;
  dependencies_.start_copy();
}

Program Emitter::finish() {
  return std::move(program_);
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

void Emitter::access(Mode mode, Arena arena, int64_t offset, int64_t bytes, int64_t first,
                     const Value& value) {
  if (bytes > 0) program_.accesses.push_back({mode, arena, offset, bytes, first, value});
}

void Emitter::read(Arena arena, int64_t offset, int64_t bytes, int64_t first, const Value& value) {
  access(Mode::kRead, arena, offset, bytes, first, value);
}

void Emitter::write(Arena arena, int64_t offset, int64_t bytes, int64_t first, const Value& value) {
  access(Mode::kWrite, arena, offset, bytes, first, value);
}

void Emitter::close() {
  Op& op = program_.ops.back();
  op.access_end = static_cast<uint32_t>(program_.accesses.size());
  op.wait_begin = static_cast<uint32_t>(program_.waits.size());
  for (const Wait& wait : dependencies_.add(op.lane, program_.accesses_of(op))) {
    program_.waits.push_back(wait);
  }
  op.wait_end = static_cast<uint32_t>(program_.waits.size());
  const auto index = static_cast<uint32_t>(program_.ops.size() - 1);
  program_.lanes[static_cast<size_t>(op.lane)].push_back(index);
}

}  // namespace strata::plan
