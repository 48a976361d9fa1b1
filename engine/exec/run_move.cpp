// SPDX-License-Identifier: Apache-2.0
// Ops that move bytes without arithmetic, and the sums over ranks.
#include <cstring>

#include "engine/base/check.h"
#include "engine/exec/device_group.h"
#include "engine/exec/executor_impl.h"
#include "engine/exec/norm_sum.h"
#include "engine/exec/op_access.h"
#include "engine/plan/memory_map.h"
#include "engine/plan/op_contract.h"

namespace strata::exec {
namespace {

using plan::Access;
using plan::Mode;
using plan::ValueKind;

}  // namespace

void Executor::Impl::run_copy(const plan::Op& op, const Instance& instance) {
  for_each_move(program_of(instance).accesses_of(op), [&](const Access& read, const Access& to) {
    queues_[static_cast<size_t>(op.lane)]->copy(at(to), at(read), read.bytes);
  });
}

void Executor::Impl::run_between_ranks(const plan::Op& op, Instance& instance) {
  const SentBytes before = sent_of(op);
  if (op.kind == plan::OpKind::kGather) {
    run_gather(op, instance);
  } else if (op.kind == plan::OpKind::kReduce) {
    run_reduce(op, instance);
  } else if (op.kind == plan::OpKind::kAllToAll) {
    run_all_to_all(op, instance);
  } else {
    run_message(op, instance);
  }
  instance.sent[index_of(op.lane)] += sent_of(op) - before;
}

SentBytes Executor::Impl::sent_of(const plan::Op& op) const {
  SentBytes sent = group_of(op).sent();
  if (const auto& group = device_groups_[static_cast<size_t>(op.group)]) sent += group->sent();
  return sent;
}

// Copies own parts to their places in the whole segment, then gathers the others' parts.
void Executor::Impl::run_gather(const plan::Op& op, const Instance& instance) {
  const plan::Program& program = program_of(instance);
  if (op.group == plan::GroupName::kContext || op.group == plan::GroupName::kTensor) {
    return gather_values(op, program);
  }
  comm::Group& group = open_group(op, program);
  const auto accesses = program.accesses_of(op);
  const int64_t width = width_of(Plane::kHi, plan_.recipe);
  std::byte* segment = nullptr;  // the address of its byte 0
  int64_t first = 0, last = 0;   // bytes of the segment that are gathered
  for (const Access& access : accesses) {
    if (access.mode != Mode::kWrite || access.value.kind == ValueKind::kScratch) continue;
    if (!segment) first = access.first;
    segment = at(access) - access.first;
    last = access.first + access.bytes;
  }
  STRATA_CHECK(segment != nullptr);
  for (const Access& access : accesses) {
    if (access.mode == Mode::kRead) copy_own(op, segment + access.first, access);
  }
  gather_scratch_.clear();
  for (int c = plan_.layout.first_chunk[op.segment]; c < plan_.layout.first_chunk[op.segment + 1];
       ++c) {
    const shard::Chunk& chunk = plan_.layout.chunks[c];
    if (chunk.offset * width < first || chunk.offset * width >= last) continue;
    gather_scratch_.push_back({segment + chunk.offset * width, plan_.layout.part_numel(c) * width});
  }
  group.gather_chunks(gather_scratch_);
}

void Executor::Impl::run_all_to_all(const plan::Op& op, const Instance& instance) {
  const plan::Program& program = program_of(instance);
  const Access& sent = program.accesses_of(op)[0];
  const Access& received = program.accesses_of(op)[1];
  comm::Group& group = open_group(op, program);
  group.all_to_all({at(sent), at(received), sent.bytes / group.size()});
}

// Own keys or scores are in their place among those of all; own rows may lie elsewhere.
void Executor::Impl::gather_values(const plan::Op& op, const plan::Program& program) {
  const auto accesses = program.accesses_of(op);
  const Access& own = accesses[0];
  const Access& all = accesses[1];
  comm::Group& group = open_group(op, program);
  copy_own(op, at(all) + group.rank() * own.bytes, own);
  group.gather(at(all), own.bytes);
}

void Executor::Impl::sum_to_own(const plan::Op& op, const plan::Program& program) {
  const auto accesses = program.accesses_of(op);
  const Access& all = accesses[0];
  const Access& own = accesses[1];
  open_group(op, program)
      .reduce({floats_at(all), own.bytes / plan::kGradientWidth, floats_at(own)});
}

// Of a segment's gradient, what the ranks of a tensor group have parts of.
void Executor::Impl::sum_whole_gradient(const plan::Op& op, const plan::Program& program) {
  const model::Segment& segment = spec_.segments[op.segment];
  float* gradient = floats_at(program.accesses_of(op).front());
  open_group(op, program)
      .all_reduce_sum(gradient + segment.trainable_numel - segment.whole_numel,
                      segment.whole_numel);
}

comm::Group& Executor::Impl::group_of(const plan::Op& op) const {
  comm::Group* group = options_.groups[static_cast<size_t>(op.group)];
  STRATA_CHECK(group != nullptr);
  return *group;
}

float* Executor::Impl::floats_at(const Access& access) const {
  return reinterpret_cast<float*>(at(access));
}

// The group for the values of an op: they may lie on the device.
comm::Group& Executor::Impl::open_group(const plan::Op& op, const plan::Program& program) {
  const auto accesses = program.accesses_of(op);
  const Access* buffer = find_access(accesses, Mode::kWrite, ValueKind::kScratch);
  if (buffer == nullptr) return group_of(op);
  std::vector<kernels::MemoryRange>& ranges = exchanged_ranges_[static_cast<size_t>(op.group)];
  ranges.clear();
  for (const Access& access : accesses) {
    ranges.push_back({at(access), access.bytes, access.mode == Mode::kWrite});
  }
  DeviceGroup& group = *device_groups_[static_cast<size_t>(op.group)];
  group.open({.name = plan::contract_of(op.kind).name,
              .ranges = ranges,
              .buffer = {at(*buffer), static_cast<size_t>(buffer->bytes)}});
  return group;
}

// Of an open group's op.
void Executor::Impl::copy_own(const plan::Op& op, std::byte* to, const Access& from) {
  if (to == at(from)) return;
  if (from.arena == plan::Arena::kDevice) {
    return device_groups_[static_cast<size_t>(op.group)]->copy(to, at(from), from.bytes);
  }
  std::memcpy(to, at(from), static_cast<size_t>(from.bytes));
}

// Sums over a group: own parts, or everything when every rank keeps everything.
void Executor::Impl::run_reduce(const plan::Op& op, const Instance& instance) {
  const plan::Program& program = program_of(instance);
  if (op.group == plan::GroupName::kPipeline) return sum_norms(op, program);
  if (op.segment < 0) return reduce_norms(op, program);
  const ValueKind kind = program.accesses_of(op).front().value.kind;
  const bool keeps_own = op.group == plan::GroupName::kContext || plan::is_branch(kind);
  if (keeps_own) return sum_to_own(op, program);
  if (op.group == plan::GroupName::kTensor && kind == ValueKind::kGradient) {
    return sum_whole_gradient(op, program);
  }
  const bool whole = op.group != plan::GroupName::kShard || plan_.mesh.gradient_shards() == 1;
  whole ? reduce_whole(op, program) : reduce_to_parts(op, program);
}

// A rank has zeros for partials of other ranks, so after the sum every rank has all partials.
void Executor::Impl::reduce_norms(const plan::Op& op, const plan::Program& program) {
  const auto accesses = program.accesses_of(op);
  norm_scratch_.clear();
  for (const Access& access : accesses) {
    if (access.mode != Mode::kRead) continue;
    const auto* values = reinterpret_cast<const double*>(at(access));
    norm_scratch_.insert(norm_scratch_.end(), values, values + access.bytes / sizeof(double));
  }
  group_of(op).all_reduce_sum(norm_scratch_.data(), static_cast<int64_t>(norm_scratch_.size()));
  const double* next = norm_scratch_.data();
  for (const Access& access : accesses) {
    if (access.mode != Mode::kWrite) continue;
    std::memcpy(at(access), next, static_cast<size_t>(access.bytes));
    next += access.bytes / sizeof(double);
  }
}

// Each section goes on with the sum of those before it, so partials are added one by one in the
// order of the model. The last one has the sum.
void Executor::Impl::sum_norms(const plan::Op& op, const plan::Program& program) {
  comm::Group& group = group_of(op);
  const model::Route& route = spec_.stage.route;
  NormSum sum;
  const auto message = [&](int section) {
    return comm::Message{.data = &sum, .bytes = sizeof(sum), .peer = route.rank_of(section)};
  };
  for (const model::Section& section : spec_.stage.sections) {
    if (section.number > 0) group.recv(message(section.number - 1));
    for (const Access& access : program.accesses_of(op)) {
      const int segment = access.value.segment;
      const bool own = segment >= section.first_segment && segment < section.end_segment;
      if (access.mode == Mode::kRead && own) add_partials(sum, at(access), access.bytes);
    }
    if (section.number + 1 < route.sections()) group.send(message(section.number + 1));
  }
  group.broadcast(&sum, sizeof(sum), group.size() - 1);
  const Access* to = find_access(program.accesses_of(op), Mode::kWrite, ValueKind::kNormSum);
  STRATA_CHECK(to != nullptr);
  std::memcpy(at(*to), &sum, sizeof(sum));
}

void Executor::Impl::run_message(const plan::Op& op, const Instance& instance) {
  const plan::Program& program = program_of(instance);
  const Access& access = program.accesses_of(op).front();
  const bool sends = op.kind == plan::OpKind::kSend;
  comm::Group& group = open_group(op, program);
  const bool back = access.value.kind == ValueKind::kActivationGradient;
  const int step = sends == back ? group.size() - 1 : 1;  // on the ring of ranks
  const comm::Message message = {.data = at(access),
                                 .bytes = access.bytes,
                                 .peer = (group.rank() + step) % group.size(),
                                 .tag = op.number};
  sends ? group.send(message) : group.recv(message);
}

void Executor::Impl::reduce_whole(const plan::Op& op, const plan::Program& program) {
  comm::Group& group = open_group(op, program);
  for_each_move(program.accesses_of(op), [&](const Access& read, const Access& to) {
    copy_own(op, at(to), read);
    const bool is_gradient = read.value.kind == ValueKind::kGradient;
    group.all_reduce_sum(floats_at(to), to.bytes / plan::kGradientWidth,
                         is_gradient ? plan_.mesh.reduce_dtype : Payload::kF32);
  });
}

void Executor::Impl::reduce_to_parts(const plan::Op& op, const plan::Program& program) {
  comm::Group& group = open_group(op, program);
  float* whole = nullptr;
  int c = plan_.layout.first_chunk[op.segment];
  reduce_scratch_.clear();
  for (const Access& access : program.accesses_of(op)) {
    if (access.value.kind == ValueKind::kScratch) continue;
    if (access.mode == Mode::kRead) {
      whole = floats_at(access) - access.first / plan::kGradientWidth;
      continue;
    }
    STRATA_CHECK(whole != nullptr);
    const shard::Chunk& chunk = plan_.layout.chunks[c];
    reduce_scratch_.push_back(
        {whole + chunk.offset, plan_.layout.part_numel(c++), floats_at(access)});
  }
  group.reduce_chunks(reduce_scratch_, plan_.mesh.reduce_dtype);
}

}  // namespace strata::exec
