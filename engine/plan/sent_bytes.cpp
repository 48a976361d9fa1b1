// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/sent_bytes.h"

#include <algorithm>

#include "engine/base/units.h"
#include "engine/plan/memory_map.h"

namespace strata::plan {
namespace {

// What an op reads and writes, without its bounce buffer.
struct Exchanged {
  int64_t read = 0;
  int64_t written = 0;
};

Exchanged exchanged(const Program& program, const Op& op) {
  Exchanged bytes;
  for (const Access& access : program.accesses_of(op)) {
    if (access.value.kind == ValueKind::kScratch) continue;
    (access.mode == Mode::kRead ? bytes.read : bytes.written) += access.bytes;
  }
  return bytes;
}

class Counter {
 public:
  Counter(const Plan& plan, const model::ModelSpec& spec) : plan_(plan), spec_(spec) {}

  int64_t of(const Program& program, const Op& op) const {
    const int64_t others = plan_.mesh.size_of(op.group) - 1;
    const Exchanged bytes = exchanged(program, op);
    switch (op.kind) {
      case OpKind::kSend:
        return bytes.read;
      case OpKind::kGather:  // reads its part
        return others * bytes.read;
      case OpKind::kReduce:
        if (op.group == GroupName::kPipeline) return of_norm_sum();
        if (op.segment < 0) return of_whole_sum(op, bytes.read, kNormWidth, kNormWidth);
        if (op.group == GroupName::kContext) return others * bytes.written;
        return of_sum(program, op);
      default:
        return 0;
    }
  }

 private:
  static constexpr int64_t kNormWidth = sizeof(double);

  int64_t of_sum(const Program& program, const Op& op) const {
    const bool is_gradient = program.accesses_of(op).front().value.kind == ValueKind::kGradient;
    const bool narrow = is_gradient && plan_.mesh.reduce_dtype == DType::kBF16;
    const int64_t wire = narrow ? 2 : kGradientWidth;
    const Exchanged bytes = exchanged(program, op);
    const int64_t others = plan_.mesh.size_of(op.group) - 1;
    const bool keeps_part = op.group == GroupName::kShard && plan_.mesh.gradient_shards() > 1;
    if (keeps_part) return others * bytes.written / kGradientWidth * wire;
    int64_t sum = 0;
    for (const Access& access : program.accesses_of(op)) {
      if (access.mode == Mode::kRead) {
        sum += of_whole_sum(op, access.bytes, kGradientWidth, wire);
      }
    }
    return sum;
  }

  // Each rank sums a part and sends it to all others.
  int64_t of_whole_sum(const Op& op, int64_t bytes, int64_t width, int64_t wire) const {
    const int64_t ranks = plan_.mesh.size_of(op.group);
    const int64_t count = bytes / width;
    const int64_t part = ceil_div(count, ranks);
    const int place = plan_.mesh.members_of(op.group).index_of(plan_.mesh.rank);
    const int64_t own = std::clamp<int64_t>(count - place * part, 0, part);
    return (count - own) * wire + own * width * (ranks - 1);
  }

  // From section to section, then from the last rank to all.
  int64_t of_norm_sum() const {
    const int ranks = plan_.mesh.pipeline;
    int64_t messages = plan_.mesh.stage() == ranks - 1 ? ranks - 1 : 0;
    for (const model::Section& section : spec_.stage.sections) {
      messages += section.number + 1 < spec_.stage.route.sections();
    }
    return messages * kNormBytes;
  }

  const Plan& plan_;
  const model::ModelSpec& spec_;
};

}  // namespace

int64_t sent_bytes(const Plan& plan, const model::ModelSpec& spec, ProgramName name) {
  const Counter counter(plan, spec);
  const Program& program = plan.program(name);
  int64_t sum = 0;
  for (const Op& op : program.ops) {
    if (is_comm_lane(op.lane)) sum += counter.of(program, op);
  }
  return sum;
}

}  // namespace strata::plan
