// SPDX-License-Identifier: Apache-2.0
// Ops of the optimizer lane and, for state on a discrete device, of the update lane: norms, the
// decision, updates, and loading and saving state.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/units.h"
#include "engine/exec/executor_impl.h"
#include "engine/exec/norm_sum.h"
#include "engine/exec/op_access.h"
#include "engine/plan/memory_map.h"

namespace strata::exec {
namespace {

using plan::Access;
using plan::Mode;
using plan::ValueKind;

// The result of NormPartial for each part of a chunk.
using Partial = kernels::SquaresPartial;
static_assert(sizeof(Partial) == plan::kNormBytes);

}  // namespace

// Issues a kernel to the lane's queue.
template <typename KernelOp>
void Executor::Impl::issue(plan::Lane lane,
                           void (*kernels::DeviceOps::*entry)(kernels::Queue&, const KernelOp&),
                           const KernelOp& op) const {
  parallel_.run([&] { (device_of(lane).ops().*entry)(*queues_[index_of(lane)], op); });
}

// Partials are by chunk and rank's part, independent of which rank sums them, so the norm has the
// same bits for every way of sharding gradients.
void Executor::Impl::run_norm(const plan::Op& op, const Instance& instance) {
  const auto accesses = program_of(instance).accesses_of(op);
  const Access* out = find_access(accesses, Mode::kWrite, ValueKind::kNormPartial);
  auto* partials = reinterpret_cast<Partial*>(at(*out));
  kernels::Workspace workspace = {norm_workspace_.data(),
                                  static_cast<int64_t>(norm_workspace_.size())};
  if (on_device(op.lane)) {
    const Access* scratch = find_access(accesses, Mode::kWrite, ValueKind::kScratch);
    workspace = {};
    if (scratch != nullptr) workspace = {at(*scratch), scratch->bytes};
  }
  // Partials that are never written must be zero. Device memory was zero when it was allocated.
  if (!on_device(op.lane)) {
    std::fill_n(partials, static_cast<size_t>(out->bytes) / sizeof(Partial), Partial{});
  }
  // Parts that follow each other, in memory and in the partials, are one call.
  kernels::SumSquares sum = {.workspace = workspace};
  const auto flush = [&] {
    if (sum.count > 0) issue(op.lane, &kernels::DeviceOps::sum_squares, sum);
    sum.count = 0;
  };
  const auto add = [&](const float* x, int64_t count, Partial* to) {
    const int64_t ranges = sum.count / std::max<int64_t>(1, sum.part);
    const bool follows = sum.count > 0 && sum.count % sum.part == 0 && count <= sum.part &&
                         x == sum.x + sum.count && to == sum.out + ranges;
    if (!follows) {
      flush();
      sum.x = x;
      sum.out = to;
      sum.part = count;
    }
    sum.count += count;
  };
  const int parts = plan_.layout.shard_count;
  const int first_chunk = plan_.layout.first_chunk[op.segment];
  for (int c = first_chunk; c < plan_.layout.first_chunk[op.segment + 1]; ++c) {
    const shard::Chunk& chunk = plan_.layout.chunks[c];
    // What every tensor rank has, one of them counts.
    if (chunk.frozen || (chunk.whole && plan_.mesh.tensor_rank() > 0)) continue;
    const int64_t part = plan_.layout.part_numel(c);
    for (int p = 0; p < parts; ++p) {
      const int64_t first = (chunk.offset + p * part) * plan::kGradientWidth;
      for (const Access& access : accesses) {
        if (access.mode != Mode::kRead || first < access.first ||
            first >= access.first + access.bytes) {
          continue;
        }
        const std::byte* x = at(access.arena, access.offset - access.first + first);
        add(reinterpret_cast<const float*>(x), part, partials + (c - first_chunk) * parts + p);
      }
    }
  }
  flush();
}

// torch.nn.utils.clip_grad_norm_: coefficient = min(1, clip / (norm + 1e-6)). Gradients are those
// of the scaled loss; the norm is of those without any scale.
void Executor::Impl::run_decide(const plan::Op& op, Instance& instance) {
  const auto accesses = program_of(instance).accesses_of(op);
  auto& decision =
      *reinterpret_cast<Decision*>(at(*find_access(accesses, Mode::kWrite, ValueKind::kDecision)));
  decision.valid = false;
  if (instance.program == plan::ProgramName::kDrain) return;
  NormSum norm;
  for (const Access& access : accesses) {
    if (access.value.kind == ValueKind::kNormPartial) add_partials(norm, at(access), access.bytes);
    if (access.value.kind == ValueKind::kNormSum) std::memcpy(&norm, at(access), sizeof(norm));
  }
  progress_.wait_until([&] { return instance.may_decide.load(); });
  const LossScale scale = decision.loss_scale;
  const double given_scale = instance.settings.gradient_scale;
  const double total_scale = scale.factor * given_scale;
  instance.loss_scale = scale.factor;
  instance.grad_norm = std::sqrt(norm.sum) / total_scale;
  // A scale below 1 makes gradients larger, maybe too large for f32.
  const double most = given_scale < 1 ? double{std::numeric_limits<float>::max()}
                                      : std::numeric_limits<double>::max();
  instance.finite = norm.not_finite == 0 && instance.grad_norm <= most;
  instance.overflowed = !instance.finite && scale.factor > 1;
  const double clip = instance.settings.clip;
  const double clipping = clip > 0 ? std::min(1.0, clip / (instance.grad_norm + 1e-6)) : 1.0;
  decision.settings = instance.settings;
  decision.coefficient = clipping / total_scale;
  decision.valid = instance.finite && !instance.discards && plan_.update().waits;
  decision.updates += decision.valid || !plan_.update().waits ? 1 : 0;
  if (scales_loss(plan_.recipe)) decision.loss_scale = next_loss_scale(scale, instance.finite);
  if (plan_.update().waits) leave_sides(instance.sequence + 1, decision.valid);
}

UpdateHistory Executor::Impl::history() const {
  if (decision_ == nullptr) return {};
  UpdateHistory history = {.updates = decision_->updates - (decision_->valid ? 1 : 0)};
  if (scales_loss(plan_.recipe)) history.loss_scale = decision_->loss_scale;
  return history;
}

const Executor::Impl::Decision& Executor::Impl::decision_of(const plan::Op& op,
                                                            const Instance& instance) const {
  const Access* read =
      find_access(program_of(instance).accesses_of(op), Mode::kRead, ValueKind::kDecision);
  STRATA_CHECK(read != nullptr);
  return *reinterpret_cast<const Decision*>(at(*read));
}

void Executor::Impl::run_optimize(const plan::Op& op, const Instance& instance) {
  const Decision& decision = decision_of(op, instance);
  const bool decided = plan_.update().waits;
  const StepSettings& settings = decided ? decision.settings : instance.settings;
  const double coefficient = decided ? decision.coefficient : 1.0;
  const int64_t updates = decision.updates + (decided ? 0 : 1);
  const ChunkState state = chunk_state(op, instance, Mode::kWrite);
  const auto accesses = program_of(instance).accesses_of(op);
  const auto* grad =
      reinterpret_cast<const float*>(at(*find_access(accesses, Mode::kRead, ValueKind::kGradient)));
  auto* exp_avg_sq =
      reinterpret_cast<float*>(at(*find_plane(accesses, Mode::kRead, Plane::kExpAvgSq)));
  const shard::Chunk& chunk = plan_.layout.chunks[op.chunk];
  const int64_t begin = state.state_first - chunk.offset;
  for (const shard::GroupRun& run : chunk.runs) {
    const int64_t first = std::max(run.first, begin);
    const int64_t last = std::min(run.first + run.count, begin + state.state_count);
    if (first >= last) continue;
    const model::ParameterGroup& group = spec_.groups[run.group];
    const int64_t skip = first - begin;
    const GivenGroup* given = group.given > 0 && settings.groups != nullptr
                                  ? settings.groups + (group.given - 1)
                                  : nullptr;
    const double usual = group.decays ? group.weight_decay.value_or(settings.weight_decay) : 0.0;
    kernels::AdamW adamw;
    adamw.count = last - first;
    const WeightPlanes weights = state.planes_at(chunk.offset + first, true);
    adamw.master = weights.master;
    adamw.hi = weights.hi;
    adamw.lo = weights.lo;
    adamw.exp_avg = state.exp_avg + skip;
    adamw.exp_avg_sq = exp_avg_sq + skip;
    adamw.next_exp_avg_sq = state.exp_avg_sq + skip;
    adamw.grad = grad + skip;
    adamw.scalars = kernels::adamw_scalars({.lr = given ? given->lr : settings.lr * group.lr_factor,
                                            .beta1 = settings.beta1,
                                            .beta2 = settings.beta2,
                                            .eps = settings.eps,
                                            .weight_decay = given ? given->weight_decay : usual},
                                           updates, coefficient);
    issue(op.lane, &kernels::DeviceOps::adamw, adamw);
  }
}

// The buffers of one chunk, from the accesses of one mode.
ChunkState Executor::Impl::chunk_state(const plan::Op& op, const Instance& instance,
                                       Mode mode) const {
  const auto accesses = program_of(instance).accesses_of(op);
  const int64_t width = width_of(Plane::kHi, plan_.recipe);
  ChunkState state;
  state.segment = op.segment;
  state.chunk = op.chunk;
  state.frozen = plan_.layout.chunks[op.chunk].frozen;
  state.recipe = plan_.recipe;
  const Access* hi = find_plane(accesses, mode, Plane::kHi);
  state.hi = at(*hi);
  state.hi_first = hi->first / width;
  state.hi_count = hi->bytes / width;
  if (const Access* lo = find_plane(accesses, mode, Plane::kLo)) {
    state.lo = at(*lo);
  }
  if (const Access* average = find_plane(accesses, mode, Plane::kExpAvg)) {
    state.exp_avg = reinterpret_cast<float*>(at(*average));
    state.state_first = average->first / static_cast<int64_t>(sizeof(float));
    state.state_count = average->bytes / static_cast<int64_t>(sizeof(float));
    state.exp_avg_sq = reinterpret_cast<float*>(at(*find_plane(accesses, mode, Plane::kExpAvgSq)));
  }
  return state;
}

// During load, state comes from the instance's source. Later the read lane reads frozen weights,
// not faster than the plan expects of any read.
void Executor::Impl::run_convert(const plan::Op& op, const Instance& instance) {
  const bool frozen = op.lane == plan::Lane::kReadWeights;
  StateSource* source = frozen ? options_.frozen : instance.source;
  STRATA_CHECK(source != nullptr);
  if (frozen) await_pace(op.bytes);
  ChunkState state = chunk_state(op, instance, Mode::kWrite);
  state.zero_moments = !frozen && has_fresh_moments(op, instance);
  expect_chunks(op, instance, *source);
  source->read(state);
}

// Tells a source what its lane converts from this op on. Frozen weights are read again by the next
// step, which begins as this one does.
void Executor::Impl::expect_chunks(const plan::Op& op, const Instance& instance,
                                   StateSource& source) const {
  constexpr size_t kMostChunks = 16;
  constexpr int64_t kEnoughBytes = 64 * kMiB;
  const plan::Program& program = program_of(instance);
  const std::vector<uint32_t>& lane = program.lanes[index_of(op.lane)];
  const auto own = static_cast<uint32_t>(&op - program.ops.data());
  size_t at = static_cast<size_t>(std::ranges::lower_bound(lane, own) - lane.begin());
  std::array<ChunkState, kMostChunks> chunks;
  size_t count = 0;
  int64_t bytes = 0;
  for (size_t seen = 0; seen < lane.size() && count < kMostChunks && bytes < kEnoughBytes; ++seen) {
    if (at == lane.size() && op.lane != plan::Lane::kReadWeights) break;
    at %= lane.size();
    const plan::Op& next = program.ops[lane[at++]];
    if (next.kind != plan::OpKind::kConvert) continue;
    chunks[count++] = chunk_state(next, instance, Mode::kWrite);
    bytes += next.bytes;
  }
  source.expect(std::span(chunks).first(count));
}

// Before the first program, nothing has written to the arenas.
bool Executor::Impl::has_fresh_moments(const plan::Op& op, const Instance& instance) const {
  const bool first = instance.base == decltype(instance.base){};
  if (!first || instance.program != plan::ProgramName::kLoad) return false;
  return fresh_moments_[static_cast<size_t>(&op - program_of(instance).ops.data())];
}

void Executor::Impl::await_pace(int64_t bytes) {
  if (!limiter_.limits(io::Direction::kRead)) return;
  progress_.sleep_until(limiter_.book(io::Direction::kRead, static_cast<uint64_t>(bytes), now_s()));
}

void Executor::Impl::run_save(const plan::Op& op, const Instance& instance) {
  STRATA_CHECK(instance.sink != nullptr);
  instance.sink->write(chunk_state(op, instance, Mode::kRead));
}

}  // namespace strata::exec
