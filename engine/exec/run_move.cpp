// SPDX-License-Identifier: Apache-2.0
// Ops that move bytes without arithmetic, and the sums over ranks.
#include <cstring>

#include "engine/base/check.h"
#include "engine/exec/executor_impl.h"
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

// Groups of ranks work on memory of the host, in the order of the lane's queue.
void Executor::Impl::run_gather(const plan::Op& op, const Instance& instance) {
  queues_[static_cast<size_t>(op.lane)]->call(
      [this, &op, &instance](const kernels::HostView& view) { gather(op, instance, view); });
}

void Executor::Impl::run_reduce(const plan::Op& op, const Instance& instance) {
  queues_[static_cast<size_t>(op.lane)]->call(
      [this, &op, &instance](const kernels::HostView& view) { reduce(op, instance, view); });
}

// Own parts go to their place in the whole segment, then come the others'.
void Executor::Impl::gather(const plan::Op& op, const Instance& instance,
                            const kernels::HostView& view) {
  const auto at = [&](plan::Arena arena, int64_t offset) {
    return static_cast<std::byte*>(view.at(this->at(arena, offset)));
  };
  const auto accesses = program_of(instance).accesses_of(op);
  const int64_t width = plan::width_of(plan::Plane::kHi, plan_.recipe);
  std::byte* whole = nullptr;
  int64_t first = 0, last = 0;  // bytes of the segment that are gathered
  for (const Access& access : accesses) {
    if (access.mode != Mode::kWrite) continue;
    if (!whole) first = access.first;
    whole = at(access.arena, access.offset - access.first);
    last = access.first + access.bytes;
  }
  STRATA_CHECK(whole != nullptr);
  for (const Access& access : accesses) {
    if (access.mode != Mode::kRead) continue;
    std::byte* to = whole + access.first;
    if (to != at(access.arena, access.offset))
      std::memcpy(to, at(access.arena, access.offset), static_cast<size_t>(access.bytes));
  }
  gather_scratch_.clear();
  const int64_t world = plan_.mesh.world;
  for (int c = plan_.layout.first_chunk[op.segment]; c < plan_.layout.first_chunk[op.segment + 1];
       ++c) {
    const shard::Chunk& chunk = plan_.layout.chunks[c];
    if (chunk.offset * width < first || chunk.offset * width >= last) continue;
    gather_scratch_.push_back({whole + chunk.offset * width, chunk.numel / world * width});
  }
  if (options_.data_group) options_.data_group->gather_chunks(gather_scratch_);
}

// The sum over ranks of own parts, or of everything where every rank keeps whole gradients.
void Executor::Impl::reduce(const plan::Op& op, const Instance& instance,
                            const kernels::HostView& view) {
  const auto at = [&](plan::Arena arena, int64_t offset) {
    return static_cast<std::byte*>(view.at(this->at(arena, offset)));
  };
  const auto accesses = program_of(instance).accesses_of(op);
  float* whole = nullptr;
  int64_t numel = 0;
  for (const Access& access : accesses) {
    if (access.mode != Mode::kRead) continue;
    whole = reinterpret_cast<float*>(at(access.arena, access.offset - access.first));
    numel = access.bytes / plan::kGradientWidth;
  }
  STRATA_CHECK(whole != nullptr && options_.data_group != nullptr);
  if (plan_.mesh.gradient_shards() == 1) {
    options_.data_group->all_reduce_sum(whole, numel);
    for (const Access& access : accesses) {
      if (access.mode != Mode::kWrite) continue;
      const std::byte* from = reinterpret_cast<std::byte*>(whole) + access.first;
      if (from != at(access.arena, access.offset))
        std::memcpy(at(access.arena, access.offset), from, static_cast<size_t>(access.bytes));
    }
    return;
  }
  reduce_scratch_.clear();
  int c = plan_.layout.first_chunk[op.segment];
  for (const Access& access : accesses) {
    if (access.mode != Mode::kWrite) continue;
    const shard::Chunk& chunk = plan_.layout.chunks[c++];
    reduce_scratch_.push_back({whole + chunk.offset, chunk.numel / plan_.mesh.world,
                               reinterpret_cast<float*>(at(access.arena, access.offset))});
  }
  options_.data_group->reduce_chunks(reduce_scratch_);
}

}  // namespace strata::exec
