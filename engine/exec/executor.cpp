// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/executor.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/exec/executor_impl.h"
#include "engine/exec/fresh_moments.h"

namespace strata::exec {
namespace {

using plan::Lane;

constexpr Lane kIoLanes[] = {Lane::kReadWeights, Lane::kReadState, Lane::kWrite};

size_t index_of(Lane lane) {
  return static_cast<size_t>(lane);
}

memory::Arena make_arena(int64_t bytes, bool lock) {
  return bytes > 0 ? memory::Arena(bytes, {.lock = lock}) : memory::Arena();
}

// Of the norm of one rank's part of a chunk.
size_t norm_workspace_bytes(const plan::Plan& plan, int threads) {
  int64_t bytes = 0;
  for (const shard::Chunk& chunk : plan.layout.chunks) {
    kernels::SumSquares sum;
    sum.count = chunk.numel / plan.mesh.world;
    bytes = std::max(bytes, kernels::workspace_bytes(sum, threads));
  }
  return static_cast<size_t>(bytes);
}

}  // namespace

Executor::Impl::Impl(const plan::Plan& plan, const model::ModelSpec& spec,
                     const ExecutorOptions& options)
    : plan_(plan),
      spec_(spec),
      options_(options),
      limiter_(options.rates),
      fresh_moments_(ops_with_fresh_moments(plan.program(plan::ProgramName::kLoad))),
      parallel_(options.threads),
      compute_(options.external
                   ? nullptr
                   : std::make_unique<SegmentCompute>(spec, plan.recipe, plan.shape,
                                                      *options.backend, options.threads)),
      progress_(options.deadline_s) {
  const auto bytes = [&](plan::Arena arena) {
    return plan.arenas.bytes[static_cast<size_t>(arena)];
  };
  host_ = make_arena(bytes(plan::Arena::kHost), options.lock_memory);
  device_ = make_arena(bytes(plan::Arena::kDevice), false);
  control_ = make_arena(bytes(plan::Arena::kControl), false);
  if (bytes(plan::Arena::kNvme) > 0) {
    io::VolumeOptions volume = options.volume;
    volume.bytes = static_cast<uint64_t>(bytes(plan::Arena::kNvme));
    volume.zeros_deadline_s = options.io_deadline_s;
    volume_ = std::make_unique<io::Volume>(volume);
    for (Lane lane : kIoLanes) {
      io::ChannelOptions channel;
      channel.backend = options.io_backend;
      channel.depth = static_cast<uint32_t>(plan.io_depth);
      channel.deadline_s = options.io_deadline_s;
      channel.simulated = options.simulated;
      channel.regions = {{host_.data(), static_cast<uint64_t>(host_.bytes())}};
      channel.limiter = &limiter_;
      channels_[index_of(lane)] = std::make_unique<io::Channel>(*volume_, channel);
      progress_.set_wake(lane, [this, lane] { channels_[index_of(lane)]->wake(); });
    }
  }
  for (Lane lane : kIoLanes) {
    moving_[index_of(lane)].resize(static_cast<size_t>(plan.io_depth) + kOutstanding);
  }
  norm_workspace_.resize(norm_workspace_bytes(plan, options.threads));
  norm_scratch_.reserve(plan.layout.chunks.size() * static_cast<size_t>(plan.mesh.world) * 2);
  for (int lane = 0; lane < plan::kLaneCount; ++lane) {
    if (options.external && static_cast<Lane>(lane) == Lane::kCompute) continue;
    lanes_.emplace_back([this, lane] { lane_main(static_cast<Lane>(lane)); });
  }
}

Executor::Impl::~Impl() {
  end_lanes();
}

void Executor::Impl::end_lanes() {
  progress_.stop();
  for (std::thread& lane : lanes_) lane.join();
  lanes_.clear();
}

void Executor::Impl::abort_groups(const char* why) {
  if (options_.data_group) options_.data_group->abort(why);
  if (options_.control_group) options_.control_group->abort(why);
}

std::byte* Executor::Impl::at(plan::Arena arena, int64_t offset) const {
  switch (arena) {
    case plan::Arena::kHost:
      return host_.data() + offset;
    case plan::Arena::kDevice:
      return device_.data() + offset;
    default:
      STRATA_CHECK(arena == plan::Arena::kControl);
      return control_.data() + offset;
  }
}

// --- submission
// -----------------------------------------------------------------------------------------

void Executor::Impl::submit(Instance& instance) {
  const plan::Program& program = program_of(instance);
  const int64_t sequence = submitted_.load();
  const bool overlaps =
      instance.program == plan::ProgramName::kStep && last_program_ == plan::ProgramName::kStep;
  // A step may overlap the one before it, and nothing else does.
  for (int64_t earlier = std::max<int64_t>(0, sequence - kOutstanding + 1); earlier < sequence;
       ++earlier) {
    if (overlaps && earlier == sequence - 1) continue;
    if (Instance* other = instances_[earlier % kOutstanding]) await_over(*other);
  }
  STRATA_CHECK(program.accepts_pending || !pending_.valid || overlaps);
  instance.base = next_base_;
  instance.lanes_left.store(plan::kLaneCount);
  instance.over.store(false);
  instance.loss_sums.assign(static_cast<size_t>(plan_.micro_batches), 0.0);
  instance.busy_s = {};
  instance.stall_s = {};
  instance.nvme_bytes = {};
  instance.times.assign(instance.record_times ? plan::kLaneCount : 0, {});
  instance.begin_s = now_s();
  for (int lane = 0; lane < plan::kLaneCount; ++lane) {
    next_base_[lane] += static_cast<int64_t>(program.lanes[lane].size());
  }
  last_program_ = instance.program;
  instances_[sequence % kOutstanding] = &instance;
  submitted_.store(sequence + 1);
  progress_.notify();
  // A program without passes asks nothing of a caller that computes.
  if (options_.external && program.lanes[index_of(Lane::kCompute)].empty()) finish_lane(instance);
}

// After a failure no lane may touch the instance any more: the caller frees it.
void Executor::Impl::await_over(Instance& instance) {
  try {
    progress_.wait_until([&] { return instance.over.load(); });
  } catch (const Progress::Stopped&) {
    const std::exception_ptr failure = progress_.failure();
    STRATA_CHECK(failure != nullptr);
    abort_groups("the run failed");
    end_lanes();
    std::rethrow_exception(failure);
  }
}

void Executor::Impl::wait(Instance& instance) {
  await_over(instance);
  for (Instance*& slot : instances_) {
    if (slot == &instance) slot = nullptr;
  }
  if (instance.program == plan::ProgramName::kDrain) pending_.valid = false;
}

// --- lanes
// ----------------------------------------------------------------------------------------------

void Executor::Impl::lane_main(Lane lane) {
  try {
    if (plan::is_serial(lane)) {
      run_serial(lane);
    } else {
      run_io(lane);
    }
  } catch (const Progress::Stopped&) {
    // The run is over.
  } catch (...) {
    abort_groups("a lane failed");
    progress_.fail(std::current_exception());
  }
}

Instance* Executor::Impl::instance_at(int64_t sequence) const {
  return sequence < submitted_.load() ? instances_[sequence % kOutstanding] : nullptr;
}

void Executor::Impl::run_serial(Lane lane) {
  for (int64_t sequence = 0;; ++sequence) {
    progress_.wait_until([&] { return instance_at(sequence) != nullptr; });
    Instance& instance = *instance_at(sequence);
    const plan::Program& program = program_of(instance);
    double* stall_s = lane == Lane::kCompute ? instance.stall_s.data() : nullptr;
    for (uint32_t index : program.lanes[index_of(lane)]) {
      const plan::Op& op = program.ops[index];
      await_waits(instance, op, stall_s);
      if (runs(op)) {
        const double begin_s = now_s();
        execute(op, instance);
        record(instance, lane, {index, begin_s, now_s()});
      }
      progress_.publish(lane);
    }
    finish_lane(instance);
  }
}

void Executor::Impl::record(Instance& instance, Lane lane, const OpTime& time) {
  instance.busy_s[index_of(lane)] += time.end_s - time.begin_s;
  if (instance.record_times) instance.times[index_of(lane)].push_back(time);
}

int64_t Executor::Impl::target_of(const Instance& instance, const plan::Wait& wait) const {
  return instance.base[index_of(wait.lane)] + wait.count;
}

// An op that is skipped waits too: later ops of its lane inherit its waits.
void Executor::Impl::await_waits(const Instance& instance, const plan::Op& op, double* stall_s) {
  for (const plan::Wait& wait : program_of(instance).waits_of(op)) {
    const int64_t target = target_of(instance, wait);
    if (progress_.reached(wait.lane, target)) continue;
    const double begin_s = now_s();
    progress_.wait({wait.lane, target});
    if (stall_s) stall_s[index_of(wait.lane)] += now_s() - begin_s;
  }
}

// The first wait of an op that does not hold yet.
std::optional<Progress::Target> Executor::Impl::unmet_wait(const Instance& instance,
                                                           const plan::Op& op) const {
  for (const plan::Wait& wait : program_of(instance).waits_of(op)) {
    const int64_t target = target_of(instance, wait);
    if (!progress_.reached(wait.lane, target)) return Progress::Target{wait.lane, target};
  }
  return {};
}

bool Executor::Impl::runs(const plan::Op& op) const {
  return op.predicate == plan::Predicate::kAlways || pending_.valid;
}

void Executor::Impl::finish_lane(Instance& instance) {
  if (instance.lanes_left.fetch_sub(1) > 1) return;
  instance.end_s = now_s();
  instance.over.store(true);
  progress_.notify();
}

void Executor::Impl::execute(const plan::Op& op, Instance& instance) {
  switch (op.kind) {
    case plan::OpKind::kUpload:
    case plan::OpKind::kDownload:
      return run_copy(op, instance);
    case plan::OpKind::kGather:
      return run_gather(op, instance);
    case plan::OpKind::kReduce:
      return run_reduce(op, instance);
    case plan::OpKind::kConvert:
      return run_convert(op, instance);
    case plan::OpKind::kSave:
      return run_save(op, instance);
    case plan::OpKind::kNormPartial:
      return run_norm(op, instance);
    case plan::OpKind::kDecide:
      return run_decide(op, instance);
    case plan::OpKind::kOptimize:
      return run_optimize(op, instance);
    default:
      return run_compute(op, instance);
  }
}

const char* Executor::Impl::io_backend() const {
  const auto& channel = channels_[index_of(Lane::kWrite)];
  return channel ? channel->backend_name() : "none";
}

IoTotals Executor::Impl::io_totals() const {
  if (!volume_) return {};
  const io::VolumeCounters counters = volume_->counters();
  return {static_cast<int64_t>(counters.bytes_read), static_cast<int64_t>(counters.bytes_verified),
          static_cast<int64_t>(counters.bytes_written)};
}

Executor::Executor(const plan::Plan& plan, const model::ModelSpec& spec,
                   const ExecutorOptions& options)
    : impl_(std::make_unique<Impl>(plan, spec, options)) {}
Executor::~Executor() = default;
void Executor::submit(Instance& instance) {
  impl_->submit(instance);
}
void Executor::wait(Instance& instance) {
  impl_->wait(instance);
}
SegmentUse Executor::ready(int segment, Pass pass) {
  return impl_->ready(segment, pass);
}
void Executor::done() {
  impl_->done();
}
bool Executor::pending() const {
  return impl_->pending();
}
const char* Executor::io_backend() const {
  return impl_->io_backend();
}
IoTotals Executor::io_totals() const {
  return impl_->io_totals();
}

}  // namespace strata::exec
