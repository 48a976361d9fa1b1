// SPDX-License-Identifier: Apache-2.0
// Ops that move bytes without arithmetic, and the sums over ranks.
#include <cstring>

#include "engine/base/check.h"
#include "engine/exec/executor_impl.h"
#include "engine/exec/norm_sum.h"
#include "engine/exec/op_access.h"
#include "engine/plan/memory_map.h"

namespace strata::exec {
namespace {

using plan::Access;
using plan::Mode;

}  // namespace

void Executor::Impl::run_copy(const plan::Op& op, const Instance& instance) {
  for_each_move(program_of(instance).accesses_of(op), [&](const Access& read, const Access& to) {
    queues_[static_cast<size_t>(op.lane)]->copy(at(to), at(read), read.bytes);
  });
}

// Collectives work on host memory, in the order of the lane's queue. Their closures refer only to
// the plan, because after a failure the instance may be destroyed before the queue.
void Executor::Impl::run_gather(const plan::Op& op, const Instance& instance) {
  queues_[static_cast<size_t>(op.lane)]->call(
      [this, &op, &program = program_of(instance)](const kernels::HostView& view) {
        gather(op, program, view);
      });
}

void Executor::Impl::run_reduce(const plan::Op& op, const Instance& instance) {
  queues_[static_cast<size_t>(op.lane)]->call(
      [this, &op, &program = program_of(instance)](const kernels::HostView& view) {
        reduce(op, program, view);
      });
}

// Copies own parts to their places in the whole segment, then gathers the others' parts.
void Executor::Impl::gather(const plan::Op& op, const plan::Program& program,
                            const kernels::HostView& view) {
  if (op.group == plan::GroupName::kContext || op.group == plan::GroupName::kTensor) {
    return gather_values(op, program, view);
  }
  const auto accesses = program.accesses_of(op);
  const int64_t width = width_of(Plane::kHi, plan_.recipe);
  std::byte* segment = nullptr;  // the address of its byte 0
  int64_t first = 0, last = 0;   // bytes of the segment that are gathered
  for (const Access& access : accesses) {
    if (access.mode != Mode::kWrite) continue;
    if (!segment) first = access.first;
    segment = at(access) - access.first;
    last = access.first + access.bytes;
  }
  STRATA_CHECK(segment != nullptr);
  const auto whole = [&](int64_t from, int64_t bytes) {
    return static_cast<std::byte*>(view.at(segment + from, bytes, true));
  };
  for (const Access& access : accesses) {
    if (access.mode != Mode::kRead) continue;
    const void* own = view.at(at(access), access.bytes, false);
    std::byte* to = whole(access.first, access.bytes);
    if (to != own) std::memcpy(to, own, static_cast<size_t>(access.bytes));
  }
  gather_scratch_.clear();
  for (int c = plan_.layout.first_chunk[op.segment]; c < plan_.layout.first_chunk[op.segment + 1];
       ++c) {
    const shard::Chunk& chunk = plan_.layout.chunks[c];
    if (chunk.offset * width < first || chunk.offset * width >= last) continue;
    gather_scratch_.push_back(
        {whole(chunk.offset * width, chunk.numel * width), plan_.layout.part_numel(c) * width});
  }
  group_of(op).gather_chunks(gather_scratch_);
}

// Own keys or scores are in their place among those of all.
void Executor::Impl::gather_values(const plan::Op& op, const plan::Program& program,
                                   const kernels::HostView& view) {
  const auto accesses = program.accesses_of(op);
  const bool keys = op.group == plan::GroupName::kContext;
  const plan::ValueKind kind = keys ? plan::ValueKind::kKeys : plan::ValueKind::kScores;
  const Access* own = find_access(accesses, Mode::kRead, kind);
  const Access* all = find_access(accesses, Mode::kWrite, kind);
  group_of(op).gather(view.at(at(*all), all->bytes, true), own->bytes);
}

void Executor::Impl::sum_key_gradients(const plan::Op& op, const plan::Program& program,
                                       const kernels::HostView& view) {
  const auto accesses = program.accesses_of(op);
  const Access* all = find_access(accesses, Mode::kRead, plan::ValueKind::kKeyGradient);
  const Access* own = find_access(accesses, Mode::kWrite, plan::ValueKind::kKeyGradient);
  group_of(op).reduce({static_cast<float*>(view.at(at(*all), all->bytes, false)),
                       own->bytes / plan::kGradientWidth,
                       static_cast<float*>(view.at(at(*own), own->bytes, true))});
}

comm::Group& Executor::Impl::group_of(const plan::Op& op) const {
  comm::Group* group = options_.groups[static_cast<size_t>(op.group)];
  STRATA_CHECK(group != nullptr);
  return *group;
}

// Sums over a group: own parts, or everything when every rank keeps everything.
void Executor::Impl::reduce(const plan::Op& op, const plan::Program& program,
                            const kernels::HostView& view) {
  if (op.group == plan::GroupName::kPipeline) return sum_norms(op, program);
  if (op.segment < 0) return reduce_norms(op, program);
  if (op.group == plan::GroupName::kContext) return sum_key_gradients(op, program, view);
  const bool whole = op.group != plan::GroupName::kShard || plan_.mesh.gradient_shards() == 1;
  if (whole) return reduce_whole(op, program, view);
  reduce_to_parts(op, program, view);
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
  const Access* to = find_access(program.accesses_of(op), Mode::kWrite, plan::ValueKind::kNormSum);
  STRATA_CHECK(to != nullptr);
  std::memcpy(at(*to), &sum, sizeof(sum));
}

void Executor::Impl::run_message(const plan::Op& op, const Instance& instance) {
  queues_[static_cast<size_t>(op.lane)]->call(
      [this, &op, &program = program_of(instance)](const kernels::HostView& view) {
        const Access& access = program.accesses_of(op).front();
        const bool sends = op.kind == plan::OpKind::kSend;
        comm::Group& group = group_of(op);
        const bool back = access.value.kind == plan::ValueKind::kActivationGradient;
        const int step = sends == back ? group.size() - 1 : 1;  // on the ring of ranks
        const comm::Message message = {.data = view.at(at(access), access.bytes, !sends),
                                       .bytes = access.bytes,
                                       .peer = (group.rank() + step) % group.size(),
                                       .tag = op.number};
        sends ? group.send(message) : group.recv(message);
      });
}

void Executor::Impl::reduce_whole(const plan::Op& op, const plan::Program& program,
                                  const kernels::HostView& view) {
  for_each_move(program.accesses_of(op), [&](const Access& read, const Access& to) {
    const void* from = view.at(at(read), read.bytes, false);
    auto* sum = static_cast<float*>(view.at(at(to), to.bytes, true));
    if (sum != from) std::memcpy(sum, from, static_cast<size_t>(read.bytes));
    const bool is_gradient = read.value.kind == plan::ValueKind::kGradient;
    group_of(op).all_reduce_sum(sum, to.bytes / plan::kGradientWidth,
                                is_gradient ? plan_.mesh.reduce_dtype : DType::kF32);
  });
}

void Executor::Impl::reduce_to_parts(const plan::Op& op, const plan::Program& program,
                                     const kernels::HostView& view) {
  const auto accesses = program.accesses_of(op);
  float* whole = nullptr;
  int c = plan_.layout.first_chunk[op.segment];
  reduce_scratch_.clear();
  for (const Access& access : accesses) {
    auto* const data =
        static_cast<float*>(view.at(at(access), access.bytes, access.mode == Mode::kWrite));
    if (access.mode == Mode::kRead) {
      whole = data - access.first / plan::kGradientWidth;
      continue;
    }
    STRATA_CHECK(whole != nullptr);
    const shard::Chunk& chunk = plan_.layout.chunks[c];
    reduce_scratch_.push_back({whole + chunk.offset, plan_.layout.part_numel(c++), data});
  }
  group_of(op).reduce_chunks(reduce_scratch_, plan_.mesh.reduce_dtype);
}

}  // namespace strata::exec
