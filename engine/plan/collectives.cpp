// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/collectives.h"

#include <algorithm>

namespace strata::plan {
namespace {

bool is_message(const Op& op) {
  return op.kind == OpKind::kSend || op.kind == OpKind::kRecv;
}

// Whether a message has a gradient.
bool goes_back(const Program& program, const Op& op) {
  return std::ranges::any_of(program.accesses_of(op), [](const Access& access) {
    return access.value.kind == ValueKind::kActivationGradient;
  });
}

}  // namespace

std::vector<const Op*> collectives_of(const Program& program) {
  std::vector<const Op*> collectives;
  for (const Op& op : program.ops) {
    if (is_comm_lane(op.lane) && !is_message(op)) collectives.push_back(&op);
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

namespace {

// FNV-1a over 64-bit words.
class Hash {
 public:
  template <class Word>
  void add(Word word) {
    hash_ = (hash_ ^ static_cast<uint64_t>(word)) * 0x100000001b3;
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace

int nested_ranks(const Mesh& mesh) {
  for (int name = 0; name < kGroupCount; ++name) {
    const Mesh::Members members = mesh.members_of(static_cast<GroupName>(name));
    const int near = mesh.together(members);
    if (near > 1 && near < members.size) return mesh.node_ranks;
  }
  return 0;
}

AgreedHashes hashes_of(const Plan& plan) {
  Hash collectives, before, behind;
  collectives.add(plan.recipe);
  collectives.add(plan.mesh.reduce_dtype);
  for (const Program& program : plan.programs) {
    collectives.add(program.name);
    for (const Op* op : collectives_of(program)) {
      collectives.add(op->number);
      collectives.add(op->kind);
      collectives.add(op->group);
      collectives.add(op->segment);
      collectives.add(op->chunk);
      collectives.add(op->chunk_count);
      collectives.add(op->micro_batch);
      collectives.add(agreed_bytes(program, *op));
      const Value value = exchanged_value(program, *op);
      collectives.add(value.kind);
      collectives.add(value.reduced);
    }
    for (const Op& op : program.ops) {
      if (!is_message(op)) continue;
      Hash& hash = (op.kind == OpKind::kSend) == goes_back(program, op) ? before : behind;
      hash.add(op.number);
      hash.add(op.micro_batch);
      hash.add(op.bytes);
    }
  }
  return {collectives.value(), before.value(), behind.value()};
}

bool agree(std::span<const AgreedHashes> all, const Mesh& mesh) {
  const size_t of_stage = static_cast<size_t>(mesh.stage_ranks());
  const size_t first = static_cast<size_t>(mesh.stage()) * of_stage;
  const AgreedHashes& own = all[static_cast<size_t>(mesh.rank)];
  const bool same = own.collectives == all[first].collectives && own.before == all[first].before &&
                    own.behind == all[first].behind;
  const size_t before = (first + all.size() - of_stage) % all.size();  // the stage before's first
  return same && all[before].behind == own.before;
}

}  // namespace strata::plan
