// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/collectives.h"

#include <algorithm>

namespace strata::plan {

std::vector<const Op*> collectives_of(const Program& program) {
  std::vector<const Op*> collectives;
  for (const Op& op : program.ops) {
    if (is_comm_lane(op.lane)) collectives.push_back(&op);
  }
  return collectives;
}

Value exchanged_value(const Program& program, const Op& op) {
  for (const Access& access : program.accesses_of(op)) {
    if (access.mode == Mode::kRead && access.value.kind != ValueKind::kScratch) return access.value;
  }
  return Value{};
}

int64_t agreed_bytes(const Program& program, const Op& op) {
  int64_t read = 0;
  int64_t written = 0;
  for (const Access& access : program.accesses_of(op)) {
    if (access.value.kind == ValueKind::kScratch) continue;
    (access.mode == Mode::kRead ? read : written) += access.bytes;
  }
  return std::max(read, written);
}

// FNV-1a over 64-bit words.
uint64_t collectives_hash(const Plan& plan) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](auto word) { hash = (hash ^ static_cast<uint64_t>(word)) * 0x100000001b3; };
  for (const Program& program : plan.programs) {
    add(program.name);
    for (const Op* op : collectives_of(program)) {
      add(op->number);
      add(op->kind);
      add(op->group);
      add(op->segment);
      add(op->chunk);
      add(op->chunk_count);
      add(op->micro_batch);
      add(agreed_bytes(program, *op));
      const Value value = exchanged_value(program, *op);
      add(value.kind);
      add(value.reduced);
    }
  }
  return hash;
}

}  // namespace strata::plan
