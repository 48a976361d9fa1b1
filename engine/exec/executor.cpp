// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/threads.h"
#include "engine/base/units.h"
#include "engine/exec/bounced_group.h"
#include "engine/exec/device_uses.h"
#include "engine/exec/device_watch.h"
#include "engine/exec/direct_group.h"
#include "engine/exec/fresh_moments.h"
#include "engine/exec/io_work.h"
#include "engine/exec/queue_work.h"
#include "engine/exec/state_writer.h"
#include "engine/plan/op_contract.h"
#include "engine/plan/sent_bytes.h"
#include "kernels/emulated/device_emulated.h"

namespace strata::exec {
namespace {

using plan::Lane;

constexpr Lane kIoLanes[] = {Lane::kReadWeights, Lane::kReadState, Lane::kWrite};

memory::Arena make_arena(int64_t bytes, int numa_node = -1) {
  return bytes > 0 ? memory::Arena(bytes, numa_node) : memory::Arena();
}

// Workspace for the norm of one rank's part of a chunk.
size_t norm_workspace_bytes(const plan::Plan& plan, const kernels::DeviceDescription& device) {
  int64_t bytes = 0;
  for (int c = 0; c < static_cast<int>(plan.layout.chunks.size()); ++c) {
    bytes = std::max(bytes, model::norm_workspace_bytes(plan.layout.part_numel(c), 1, device));
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
      parallel_(1),
      progress_(options.deadline_s) {
  const auto bytes = [&](plan::Arena arena) {
    return plan.arenas.bytes[static_cast<size_t>(arena)];
  };
  open_device();
  host_ = make_arena(bytes(plan::Arena::kHost), device_ ? device_->numa_node() : -1);
  control_ = make_arena(bytes(plan::Arena::kControl));
  for (const plan::Holding& holding : plan.boundary) {
    if (holding.value.kind != plan::ValueKind::kDecision) continue;
    decision_ = reinterpret_cast<Decision*>(at(holding.arena, holding.offset));
  }
  make_devices();
  pin_arenas();
  if (bytes(plan::Arena::kNvme) > 0) {
    io::VolumeOptions volume = options.volume;
    volume.bytes = static_cast<uint64_t>(bytes(plan::Arena::kNvme));
    volume.zeros_deadline_s = options.io_deadline_s;
    volume_ = std::make_unique<io::Volume>(volume);
    for (Lane lane : kIoLanes) {
      io::ChannelOptions channel = channel_options(lane);
      channel.max_transfers = most_transfers(plan, lane);
      channel.regions = {{host_.data(), static_cast<uint64_t>(host_.bytes())}};
      channels_[index_of(lane)] = std::make_unique<io::Channel>(*volume_, channel);
    }
  }
  if (options.external) progress_.stop_clock();
  norm_workspace_.resize(norm_workspace_bytes(plan, host_device_->description()));
  norm_scratch_.reserve(plan.layout.chunks.size() * static_cast<size_t>(plan.layout.shard_count) *
                        2);
  make_lanes();
}

io::ChannelOptions Executor::Impl::channel_options(Lane lane) {
  io::ChannelOptions channel;
  channel.backend = options_.io_backend;
  channel.depth = static_cast<uint32_t>(plan_.io_depth);
  channel.deadline_s = options_.io_deadline_s;
  channel.simulated = options_.simulated[index_of(lane)];
  channel.limiter = &limiter_;
  return channel;
}

// Whether the plan was made for such a device: it has the same kind, and the workspaces are large
// enough for its kernels.
bool Executor::Impl::is_planned_for(const kernels::DeviceDescription& device) const {
  if (device.discrete != plan_.device.discrete || device.interior != plan_.device.interior) {
    return false;
  }
  for (int s = 0; s < static_cast<int>(spec_.segments.size()); ++s) {
    if (spec_.segments[s].kind == model::SegmentKind::kExternal) continue;
    const auto of = [&](const kernels::DeviceDescription& one) {
      return model::footprint(spec_, s, plan_.shape, plan_.recipe, one);
    };
    const model::Footprint needs = of(device), has = of(plan_.device);
    if (needs.forward_workspace_bytes > has.forward_workspace_bytes ||
        needs.recompute_workspace_bytes > has.recompute_workspace_bytes ||
        needs.backward_workspace_bytes > has.backward_workspace_bytes) {
      return false;
    }
  }
  return true;
}

// Before anything is allocated: a device may refuse.
void Executor::Impl::open_device() {
  device_ = options_.device;
  if (!on_device(Lane::kCompute) || device_ != nullptr) return;
  opened_device_ = options_.open_device ? options_.open_device()
                                        : kernels::make_emulated_device(
                                              *options_.backend, {.threads = options_.threads});
  device_ = opened_device_.get();
}

// The bytes that io_uring reads and writes are the bytes that the device copies.
void Executor::Impl::pin_arenas() {
  if (!on_device(Lane::kCompute)) return;
  int64_t unpinned_bytes = 0;
  for (const auto& [arena, pinned] :
       {std::pair{&host_, &pinned_[0]}, std::pair{&control_, &pinned_[1]}}) {
    if (arena->bytes() == 0) continue;
    *pinned = device_->pin(arena->data(), arena->bytes());
    if (*pinned == nullptr) unpinned_bytes += arena->bytes();
  }
  if (unpinned_bytes == 0) return;
  log(LogLevel::kWarning,
      fmt::format("host-memory: {} of it cannot be pinned, so copies to and from the device are "
                  "slower (lower --host-memory, or raise the limit on locked memory: ulimit -l)",
                  format_bytes(unpinned_bytes)));
}

void Executor::Impl::make_devices() {
  host_device_ = kernels::make_host_device(*options_.backend, options_.threads);
  const int64_t device_bytes = plan_.arenas.bytes[static_cast<size_t>(plan::Arena::kDevice)];
  if (!on_device(Lane::kCompute)) device_ = host_device_.get();
  const bool is_emulated = device_->description().kernels != kernels::KernelSet::kCuda;
  if (plan_.device.discrete && is_emulated) {
    memory::require_host_memory(device_bytes, "--device-memory");
  }
  STRATA_CHECK(is_planned_for(device_->description()));
  if (device_bytes > 0) device_memory_ = device_->allocate(device_bytes);
  for (int i = 0; i < plan::kLaneCount; ++i) {
    const Lane lane = static_cast<Lane>(i);
    if (plan::is_io_lane(lane) || !has_ops(lane)) continue;
    const bool first = lane != Lane::kCompute;
    queues_[index_of(lane)] =
        device_of(lane).make_queue(plan::name_of(lane), QueueWork::kDepth, first);
  }
  make_device_groups();
  if (options_.external) {
    if (plan_.device.discrete) device_uses_ = std::make_unique<DeviceUses>(*this);
    return;
  }
  // An emulated device computes on the host's processors, where arithmetic may take any time.
  if (on_device(Lane::kCompute) && !is_emulated) watch_ = std::make_unique<DeviceWatch>(*this);
  compute_ = std::make_unique<SegmentCompute>(spec_, plan_.recipe, plan_.shape, *device_,
                                              *queues_[index_of(Lane::kCompute)]);
}

// The same for all ranks of a group: their programs differ in sizes and places alone, and each
// stage has messages.
bool Executor::Impl::exchanges_on_device(plan::GroupName name) const {
  return std::ranges::any_of(plan_.programs, [&](const plan::Program& program) {
    return std::ranges::any_of(program.ops, [&](const plan::Op& op) {
      return plan::is_comm_lane(op.lane) && op.group == name && plan::on_device(program, op);
    });
  });
}

// All ranks do that in the order of groups, because ranks whose devices are peers meet here.
void Executor::Impl::make_device_groups() {
  if (!plan_.device.discrete) return;
  const auto keep_waiting = [this] {
    if (progress_.stopped()) throw Progress::Stopped{};
  };
  for (size_t i = 0; i < options_.groups.size(); ++i) {
    if (options_.groups[i] == nullptr) continue;
    comm::Group& group = *options_.groups[i];
    const auto name = static_cast<plan::GroupName>(i);
    const char* queue = plan::name_of(plan::comm_lane_of(name));
    if (!plan_.device.peers || !exchanges_on_device(name)) {
      device_groups_[i] = std::make_unique<BouncedGroup>(group, *device_, queue, keep_waiting);
      continue;
    }
    const plan::Mesh::Members members = plan_.mesh.members_of(name);
    DirectGroup::Options options = {.name = queue,
                                    .near = plan_.mesh.together(members),
                                    .keep_waiting = keep_waiting,
                                    .deadline_s = options_.io_deadline_s};
    for (int member = 0; member < group.size(); ++member) {
      options.is_near.push_back(plan_.mesh.is_near(members.at(member)));
    }
    device_groups_[i] = std::make_unique<DirectGroup>(group, *device_, std::move(options));
  }
}

bool Executor::Impl::has_ops(Lane lane) const {
  return std::ranges::any_of(plan_.programs, [&](const plan::Program& program) {
    return !program.lanes[index_of(lane)].empty();
  });
}

// A lane without ops in any program has no thread.
void Executor::Impl::make_lanes() {
  for (int i = 0; i < plan::kLaneCount; ++i) {
    const Lane lane = static_cast<Lane>(i);
    if (!has_ops(lane)) continue;
    ++lane_count_;
    if (options_.external && lane == Lane::kCompute) continue;
    std::unique_ptr<Work>& work = works_[index_of(lane)];
    if (plan::is_io_lane(lane)) {
      work = std::make_unique<IoWork>(*this, channels_[index_of(lane)].get());
    } else {
      work = std::make_unique<QueueWork>(*this, lane);
    }
    in_flight_[index_of(lane)] =
        std::vector<InFlight>(static_cast<size_t>(work->depth()) + kOutstanding);
    progress_.set_wake(lane, [&work] { work->wake(); });
  }
  try {
    for (int i = 0; i < plan::kLaneCount; ++i) {
      if (works_[static_cast<size_t>(i)] == nullptr) continue;
      lanes_.push_back(start_thread([this, i] { lane_main(static_cast<Lane>(i)); }));
    }
    if (device_uses_) {
      lanes_.push_back(start_thread([this] { lane_main(Lane::kCompute); }));
    }
    // Beside the lanes' threads there must be some for arithmetic.
    parallel_ = kernels::Parallel(options_.threads);
  } catch (...) {
    end_lanes();
    throw;
  }
}

// After a failure, queues may still be working with members that are declared after them.
Executor::Impl::~Impl() {
  end_lanes();
  device_uses_.reset();
  writer_.reset();
  for (auto& queue : queues_) queue.reset();
  for (auto& group : device_groups_) group.reset();
}

void Executor::Impl::end_lanes() {
  progress_.stop();
  lanes_.clear();  // joins
  for (auto& ops : in_flight_) {
    for (InFlight& one : ops) one.arithmetic.reset();
  }
}

std::byte* Executor::Impl::at(plan::Arena arena, int64_t offset) const {
  switch (arena) {
    case plan::Arena::kHost:
      return host_.data() + offset;
    case plan::Arena::kDevice:
      return device_memory_->data() + offset;
    default:
      STRATA_CHECK(arena == plan::Arena::kControl);
      return control_.data() + offset;
  }
}

void Executor::Impl::submit(Instance& instance) {
  const plan::Program& program = program_of(instance);
  const int64_t sequence = submitted_.load();
  const bool overlaps =
      instance.program == plan::ProgramName::kStep && last_program_ == plan::ProgramName::kStep;
  // Only a step may overlap the step before it.
  for (int64_t earlier = std::max<int64_t>(0, sequence - kOutstanding + 1); earlier < sequence;
       ++earlier) {
    if (overlaps && earlier == sequence - 1) continue;
    if (Instance* other = instances_[earlier % kOutstanding]) await_over(*other);
  }
  // The step before may still be deciding.
  STRATA_CHECK(program.accepts_pending || overlaps || !pending());
  // If it is, its Decide says whether this one flips sides.
  if (!overlaps || !plan_.update().waits) {
    leave_sides(sequence, program.flips(!overlaps && pending()));
  }
  instance.sequence = sequence;
  instance.base = next_base_;
  instance.lanes_left.store(lane_count_);
  instance.over.store(false);
  instance.may_decide.store(!instance.decides_late);
  instance.loss_sums.assign(static_cast<size_t>(plan_.micro_batches), 0.0);
  instance.use_s.assign(spec_.uses.size(), 0.0);
  instance.busy_s = {};
  instance.stall_s = {};
  instance.nvme_bytes = {};
  instance.sent = {};
  instance.times.assign(instance.record_times ? plan::kLaneCount : 0, {});
  instance.stalls.clear();
  for (size_t lane = 0; lane < instance.times.size(); ++lane) {
    const size_t count = std::min(kMostTimes, program.lanes[lane].size());
    instance.times[lane].reserve(count);
    if (lane == index_of(Lane::kCompute)) instance.stalls.reserve(count);
  }
  instance.begin_s = now_s();
  for (int lane = 0; lane < plan::kLaneCount; ++lane) {
    next_base_[lane] += static_cast<int64_t>(program.lanes[lane].size());
  }
  last_program_ = instance.program;
  instances_[sequence % kOutstanding] = &instance;
  submitted_.store(sequence + 1);
  progress_.notify();
  // In a program without passes, a caller that computes has nothing to do.
  if (options_.external && program.lanes[index_of(Lane::kCompute)].empty()) finish_lane(instance);
}

// Arithmetic cannot be broken off, and may take minutes.
void Executor::Impl::say_failure_if_late(const std::exception_ptr& failure) const {
  if (!progress_.does_arithmetic()) return;
  log(LogLevel::kWarning,
      fmt::format("{}; wait until the arithmetic under way is done, then the run ends",
                  strata::text_of(failure)));
}

// Waits until no lane uses the instance any more, because after a failure the caller frees it.
void Executor::Impl::await_over(Instance& instance) {
  if (options_.external) progress_.start_clock();
  try {
    progress_.wait_until([&] { return instance.over.load(); },
                         [&] {
                           if (watch_) watch_->look();
                         });
    if (options_.external) progress_.stop_clock();
  } catch (const Progress::Stopped&) {
    const std::exception_ptr failure = progress_.failure();
    STRATA_CHECK(failure != nullptr);
    abort_all(options_.groups, strata::text_of(failure).c_str());
    say_failure_if_late(failure);
    end_lanes();
    std::rethrow_exception(failure);
  }
}

void Executor::Impl::wait(Instance& instance) {
  await_over(instance);
  for (Instance*& slot : instances_) {
    if (slot == &instance) slot = nullptr;
  }
}

Instance* Executor::Impl::instance_at(int64_t sequence) const {
  return sequence < submitted_.load() ? instances_[sequence % kOutstanding] : nullptr;
}

void Executor::Impl::record(Instance& instance, Lane lane, const MeasuredTime& time) {
  instance.busy_s[index_of(lane)] += time.end_s - time.begin_s;
  if (!instance.record_times || instance.times[index_of(lane)].size() == kMostTimes) return;
  instance.times[index_of(lane)].push_back(time);
}

void Executor::Impl::record_stall(Instance& instance, const MeasuredStall& stall) {
  instance.stall_s[index_of(stall.lane)] += stall.end_s - stall.begin_s;
  if (!instance.record_times || instance.stalls.size() == kMostTimes) return;
  instance.stalls.push_back(stall);
}

void Executor::Impl::finish_lane(Instance& instance) {
  if (instance.lanes_left.fetch_sub(1) > 1) return;
  instance.end_s = now_s();
  instance.over.store(true);
  progress_.notify();
}

void Executor::Impl::put(const PlaneValues& values) {
  STRATA_CHECK(!pending());
  if (writer_ == nullptr) writer_ = std::make_unique<StateWriter>(*this);
  writer_->put(values);
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
SegmentUse Executor::ready(int segment, Pass pass, const UseMode& mode) {
  return impl_->ready(segment, pass, mode);
}
void Executor::copy(void* to, const void* from, int64_t bytes) {
  impl_->copy(to, from, bytes);
}
SegmentUse Executor::used(int segment) const {
  return impl_->used(segment);
}
void Executor::skip() {
  impl_->skip();
}
Executor::NextUse Executor::next_use() {
  return impl_->next_use();
}
void Executor::done() {
  impl_->done();
}
void Executor::decide(Instance& instance) {
  impl_->decide(instance);
}
void Executor::put(const PlaneValues& values) {
  impl_->put(values);
}
bool Executor::pending() const {
  return impl_->pending();
}

UpdateHistory Executor::history() const {
  return impl_->history();
}
const char* Executor::io_backend() const {
  return impl_->io_backend();
}
IoTotals Executor::io_totals() const {
  return impl_->io_totals();
}

}  // namespace strata::exec
