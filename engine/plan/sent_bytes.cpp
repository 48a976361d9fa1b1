// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/sent_bytes.h"

#include <algorithm>

#include "engine/base/units.h"
#include "engine/plan/memory_map.h"

namespace strata::plan {
namespace {

constexpr int64_t kPartialWidth = sizeof(double);  // of norms

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

// Whether all ranks of such groups send as much to other machines: a group lies on one machine, or
// has as many ranks on each of several.
bool lies_evenly(const Mesh& mesh, const Mesh::Members& members) {
  const int extent = members.stride * members.size;
  if (mesh.node_ranks == 0 || mesh.node_ranks % extent == 0) return true;
  return members.stride % mesh.node_ranks == 0 ||
         (mesh.node_ranks % members.stride == 0 && extent % mesh.node_ranks == 0);
}

// Whether a sum within a layer leaves each rank its own part, as gradients of keys and branches.
bool keeps_own_sums(const Program& program, const Op& op) {
  return op.group == GroupName::kContext || is_branch(program.accesses_of(op).front().value.kind);
}

}  // namespace

SentCounter::SentCounter(const Mesh& mesh) : mesh_(mesh) {
  for (int name = 0; name < kGroupCount; ++name) {
    circles_[static_cast<size_t>(name)] = circle_of(mesh, static_cast<GroupName>(name));
  }
}

SentCounter SentCounter::of_slowest(const Mesh& mesh) {
  SentCounter counter(mesh);
  for (int name = 0; name < kGroupCount; ++name) {
    const auto group = static_cast<GroupName>(name);
    if (lies_evenly(mesh, mesh.members_of(group))) continue;
    Circle& slowest = counter.circles_[static_cast<size_t>(name)];
    // Of a pipeline, messages go to one place alone: it is far where it is far for some rank.
    std::vector<bool> all_near = slowest.near_places;
    Mesh other = mesh;
    for (int k = 0; k < mesh.stage_ranks(); ++k) {
      other.rank = mesh.stage() * mesh.stage_ranks() + k;
      Circle circle = circle_of(other, group);
      for (size_t place = 0; place < all_near.size(); ++place) {
        all_near[place] = all_near[place] && circle.near_places[place];
      }
      if (circle.of_a_byte.between > slowest.of_a_byte.between) slowest = std::move(circle);
    }
    if (group == GroupName::kPipeline) slowest.near_places = std::move(all_near);
  }
  return counter;
}

SentCounter::Circle SentCounter::circle_of(const Mesh& mesh, GroupName group) {
  Circle circle;
  circle.members = mesh.members_of(group);
  circle.near = mesh.together(circle.members);
  circle.own = circle.members.index_of(mesh.rank);
  for (int place = 0; place < circle.members.size; ++place) {
    circle.near_places.push_back(mesh.is_near(circle.members.at(place)));
  }
  circle.of_a_byte.within = (circle.near - 1) * circle.nodes();
  for (int place = circle.own % circle.near; place < circle.members.size; place += circle.near) {
    if (place == circle.own) continue;
    ++(circle.is_near(place) ? circle.of_a_byte.within : circle.of_a_byte.between);
  }
  return circle;
}

SentBytes SentCounter::of(const Program& program, const Op& op) const {
  const Exchanged bytes = exchanged(program, op);
  const Circle& circle = circle_of(op);
  switch (op.kind) {
    case OpKind::kSend:
      return of_message(program, op);
    case OpKind::kGather:  // reads its part
      return circle.of_a_byte * bytes.read;
    case OpKind::kAllToAll: {  // reads a part for each rank, also for itself
      const int64_t part = bytes.read / circle.members.size;
      const int64_t near = std::ranges::count(circle.near_places, true);
      return {.within = (near - 1) * part, .between = (circle.members.size - near) * part};
    }
    case OpKind::kReduce:
      if (op.group == GroupName::kPipeline) return {};
      if (op.segment < 0) return of_whole_sum(circle, bytes.read, kPartialWidth, kPartialWidth);
      if (keeps_own_sums(program, op)) return circle.of_a_byte * bytes.written;
      if (op.group == GroupName::kTensor) {
        return of_whole_sum(circle, op.bytes, kGradientWidth, kGradientWidth);
      }
      return of_sum(program, op);
    default:
      return {};
  }
}

SentBytes SentCounter::moved_by(const Program& program, const Op& op) const {
  return op.kind == OpKind::kRecv ? of_message(program, op) : of(program, op);
}

// On the ring of stages, forward or back.
SentBytes SentCounter::of_message(const Program& program, const Op& op) const {
  const Access& access = program.accesses_of(op).front();
  const bool back = access.value.kind == ValueKind::kActivationGradient;
  const Circle& circle = circle_of(op);
  const int ranks = circle.members.size;
  const int step = (op.kind == OpKind::kSend) == back ? ranks - 1 : 1;
  const bool near = circle.is_near((circle.own + step) % ranks);
  return {.within = near ? access.bytes : 0, .between = near ? 0 : access.bytes};
}

SentBytes SentCounter::of_sum(const Program& program, const Op& op) const {
  const bool is_gradient = program.accesses_of(op).front().value.kind == ValueKind::kGradient;
  const Payload payload = is_gradient ? mesh_.reduce_dtype : Payload::kF32;
  const Circle& circle = circle_of(op);
  const bool keeps_part = op.group == GroupName::kShard && mesh_.gradient_shards() > 1;
  if (keeps_part) {
    return circle.of_a_byte * bytes_of(payload, exchanged(program, op).written / kGradientWidth);
  }
  const int64_t block = block_of(payload);
  SentBytes sum;
  for (const Access& access : program.accesses_of(op)) {
    if (access.mode == Mode::kRead) {
      sum += of_whole_sum(circle, access.bytes, block * kGradientWidth, bytes_of(payload, block));
    }
  }
  return sum;
}

// Each rank sums a part of elements, or of blocks that are sent together, and all get it.
SentBytes SentCounter::of_whole_sum(const Circle& circle, int64_t bytes, int64_t width,
                                    int64_t wire) const {
  const int64_t count = bytes / width;
  const int64_t part = ceil_div(count, circle.members.size);
  const auto part_of = [&](int place) {
    return std::clamp<int64_t>(count - place * part, 0, part);
  };
  const int own_seat = circle.own % circle.near;
  SentBytes sent;
  for (int place = 0; place < circle.members.size; ++place) {
    if (place == circle.own) continue;
    const bool near = circle.is_near(place);
    if (place % circle.near != own_seat) {
      sent.within += part_of(place) * wire;
    } else {
      (near ? sent.within : sent.between) += part_of(place) * wire + part_of(circle.own) * width;
    }
  }
  for (int place = own_seat; place < circle.members.size; place += circle.near) {
    sent.within += (circle.near - 1) * part_of(place) * width;
  }
  return sent;
}

// From section to section, then from the last rank to all: to one rank of each machine, which
// shares it.
SentBytes SentCounter::of_norm_sum(const model::Stage& stage) const {
  const Circle& circle = circles_[static_cast<size_t>(GroupName::kPipeline)];
  SentBytes sent;
  const auto count = [&](int place) {
    (circle.is_near(place) ? sent.within : sent.between) += kNormBytes;
  };
  for (const model::Section& section : stage.sections) {
    const int next = section.number + 1;
    if (next < stage.route.sections()) count(stage.route.rank_of(next));
  }
  const int root = circle.members.size - 1;
  if (circle.own % circle.near != root % circle.near) return sent;
  sent.within += (circle.near - 1) * kNormBytes;
  if (circle.own != root) return sent;
  for (int place = root - circle.near; place >= 0; place -= circle.near) count(place);
  return sent;
}

bool on_device(const Program& program, const Op& op) {
  return std::ranges::any_of(program.accesses_of(op),
                             [](const Access& access) { return access.arena == Arena::kDevice; });
}

namespace {

SentBytes sent_by(std::span<const SentCounter> ranks, const Plan& plan, const model::Stage& stage,
                  ProgramName name) {
  const Program& program = plan.program(name);
  SentBytes sum;
  for (const Op& op : program.ops) {
    if (!is_comm_lane(op.lane)) continue;
    const bool of_stages = op.kind == OpKind::kReduce && op.group == GroupName::kPipeline;
    for (const SentCounter& rank : ranks) {
      sum += of_stages ? rank.of_norm_sum(stage) : rank.of(program, op);
    }
  }
  return sum;
}

}  // namespace

SentBytes sent_bytes(const Plan& plan, const model::ModelSpec& spec, ProgramName name) {
  const SentCounter own(plan.mesh);
  return sent_by({&own, 1}, plan, spec.stage, name);
}

SentBytes sent_by_stage(const Plan& plan, const model::ModelSpec& spec, ProgramName name) {
  std::vector<SentCounter> ranks;
  Mesh mesh = plan.mesh;
  for (int k = 0; k < mesh.stage_ranks(); ++k) {
    mesh.rank = plan.mesh.stage() * mesh.stage_ranks() + k;
    ranks.emplace_back(mesh);
  }
  return sent_by(ranks, plan, spec.stage, name);
}

}  // namespace strata::plan
