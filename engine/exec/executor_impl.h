// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "engine/exec/executor.h"
#include "engine/exec/progress.h"
#include "engine/exec/segment_compute.h"
#include "engine/memory/arena.h"
#include "engine/plan/memory_map.h"
#include "kernels/device.h"
#include "kernels/parallel.h"

namespace strata::exec {

class DeviceGroup;

inline size_t index_of(plan::Lane lane) {
  return static_cast<size_t>(lane);
}

// Split by subject: executor.cpp has construction and submission, lanes.cpp the driver of all
// lanes, queue_work.cpp and io_work.cpp the two ways in which a lane does an op; device_watch.cpp
// notices an op that never ends; run_compute.cpp,
// run_state.cpp, run_move.cpp and run_exchange.cpp have what ops do; state_writer.cpp changes state
// between programs.
class Executor::Impl {
 public:
  Impl(const plan::Plan& plan, const model::ModelSpec& spec, const ExecutorOptions& options);
  ~Impl();

  void submit(Instance& instance);
  void wait(Instance& instance);
  SegmentUse ready(int segment, Pass pass, const UseMode& mode);
  SegmentUse used(int segment);
  void copy(void* to, const void* from, int64_t bytes);
  void done() { close_use(false); }
  void skip();
  NextUse next_use();
  void decide(Instance& instance);
  void put(const PlaneValues& values);
  bool pending() const { return decision_ != nullptr && decision_->valid; }
  UpdateHistory history() const;
  const char* io_backend() const;
  IoTotals io_totals() const;

 private:
  // The result of Decide, in the control arena.
  struct Decision {
    bool valid = false;   // an update is pending
    int64_t updates = 0;  // updates of the state so far, including a pending one
    double coefficient = 1;
    LossScale loss_scale = {};  // of the next step
    StepSettings settings = {};
  };
  static_assert(sizeof(Decision) <= plan::kDecisionBytes);

  // An op that its lane has issued and not published; op == null marks the end of an instance.
  struct InFlight {
    Instance* instance = nullptr;
    const plan::Op* op = nullptr;
    uint32_t index = 0;
    bool runs = false;  // false: its predicate skips it
    double begin_s = 0;
    double end_s = 0;
    int64_t ticket = 0;  // of the queue
    size_t transfer_count = 0;
    std::vector<io::Transfer> transfers;
    bool took_time = false;  // it was done while it was issued
    std::optional<Progress::Arithmetic> arithmetic;
  };

  // How a lane does its ops. One thread calls everything except wake().
  class Work {
   public:
    virtual ~Work() = default;
    virtual int depth() const = 0;  // ops in flight
    virtual void start(InFlight& op) = 0;
    virtual bool is_done(InFlight& op) = 0;  // called for the oldest op; throws its failure
    virtual void finish(InFlight& op) = 0;   // records times and bytes in its instance
    // Sleeps until the oldest op may be done, or wake() is called.
    virtual void sleep(const InFlight& oldest) = 0;
    virtual void wake() = 0;
  };
  class QueueWork;
  class DeviceUses;
  class DeviceWatch;
  class IoWork;
  class StateWriter;

  // A lane's position in the stream of instances.
  struct Cursor {
    int64_t sequence = 0;
    size_t position = 0;
  };

  // executor.cpp
  bool is_planned_for(const kernels::DeviceDescription& device) const;
  void open_device();
  void make_devices();
  bool has_ops(plan::Lane lane) const;
  void pin_arenas();
  void make_lanes();
  void make_device_groups();
  bool exchanges_on_device(plan::GroupName name) const;
  io::ChannelOptions channel_options(plan::Lane lane);
  Instance* instance_at(int64_t sequence) const;
  void finish_lane(Instance& instance);
  void await_over(Instance& instance);
  void say_failure_if_late(const std::exception_ptr& failure) const;
  void end_lanes();
  void record(Instance& instance, plan::Lane lane, const MeasuredTime& time);
  void record_stall(Instance& instance, const MeasuredStall& stall);
  const plan::Program& program_of(const Instance& instance) const {
    return plan_.program(instance.program);
  }
  std::byte* at(plan::Arena arena, int64_t offset) const;
  std::byte* at(const plan::Access& access) const { return at(access.arena, access.offset); }
  // Notes which side of extents with two is live after instance `sequence`.
  void leave_sides(int64_t sequence, bool flips) {
    second_is_live_[(sequence + 1) % kOutstanding] =
        second_is_live_[sequence % kOutstanding] != flips;
  }

  // lanes.cpp
  bool on_device(plan::Lane lane) const;
  bool does_arithmetic(plan::Lane lane) const;
  kernels::Device& device_of(plan::Lane lane) const {
    return on_device(lane) ? *device_ : *host_device_;
  }
  void lane_main(plan::Lane lane);
  void run_lane(plan::Lane lane);
  bool issue_next(plan::Lane lane, Cursor& cursor, std::deque<InFlight*>& in_flight);
  bool has_room(plan::Lane lane, const std::deque<InFlight*>& in_flight) const;
  bool retire(plan::Lane lane, std::deque<InFlight*>& in_flight);
  void sleep(plan::Lane lane, const Cursor& cursor, const std::deque<InFlight*>& in_flight);
  void await(plan::Lane lane, Instance& instance, const Progress::Target& target);
  Progress::Target target_of(plan::Lane lane, const Instance& instance,
                             const plan::Wait& wait) const;
  std::optional<Progress::Target> unmet_wait(plan::Lane lane, const Instance& instance,
                                             const plan::Op& op) const;
  std::optional<Progress::Target> unmet_wait(plan::Lane lane, const Cursor& cursor) const;
  bool runs(const plan::Op& op, const Instance& instance) const;

  // queue_work.cpp
  // Of the op's waits for lanes of the same device.
  void wait_on_queue(kernels::Queue& queue, plan::Lane lane, const Instance& instance,
                     const plan::Op& op);
  void execute(const plan::Op& op, Instance& instance);

  // run_compute.cpp
  void run_compute(const plan::Op& op, const Instance& instance);
  SegmentCall call_of(const plan::Op& op, const Instance& instance) const;

  // external_lane.cpp
  Instance& external_instance();
  const plan::Op& external_op();
  template <typename Call>
  void while_lanes_work(const Call& call);
  void open_use(const UseMode& mode, bool clears_all);
  void close_use(bool is_skipped);
  SegmentUse buffers_of(int segment);
  struct Copied {
    void* to = nullptr;
    const void* from = nullptr;
    int64_t bytes = 0;
    bool takes = false;  // from a use, to the caller; else the opposite
  };
  bool lies_in_use(const void* data, int64_t bytes, plan::Mode mode);
  void clear_gradients(const plan::Op& op, bool all);
  void finish_use(Instance& instance, const MeasuredTime& time, bool is_skipped, bool is_last);

  // run_state.cpp
  void run_optimize(const plan::Op& op, const Instance& instance);
  void run_norm(const plan::Op& op, const Instance& instance);
  template <typename KernelOp>
  void issue(plan::Lane lane, void (*kernels::DeviceOps::*entry)(kernels::Queue&, const KernelOp&),
             const KernelOp& op) const;
  void run_decide(const plan::Op& op, Instance& instance);
  const Decision& decision_of(const plan::Op& op, const Instance& instance) const;
  void run_convert(const plan::Op& op, const Instance& instance);
  void expect_chunks(const plan::Op& op, const Instance& instance, StateSource& source) const;
  void await_pace(int64_t bytes);
  void run_save(const plan::Op& op, const Instance& instance);
  bool has_fresh_moments(const plan::Op& op, const Instance& instance) const;
  ChunkState chunk_state(const plan::Op& op, const Instance& instance, plan::Mode mode) const;

  // run_move.cpp
  void run_copy(const plan::Op& op, const Instance& instance);
  void run_between_ranks(const plan::Op& op, Instance& instance);
  void run_gather(const plan::Op& op, const Instance& instance);
  void run_all_to_all(const plan::Op& op, const Instance& instance);
  void run_reduce(const plan::Op& op, const Instance& instance);
  void gather_values(const plan::Op& op, const plan::Program& program);
  void sum_to_own(const plan::Op& op, const plan::Program& program);
  void sum_whole_gradient(const plan::Op& op, const plan::Program& program);
  void reduce_norms(const plan::Op& op, const plan::Program& program);
  void sum_norms(const plan::Op& op, const plan::Program& program);
  void reduce_whole(const plan::Op& op, const plan::Program& program);
  void reduce_to_parts(const plan::Op& op, const plan::Program& program);
  void run_message(const plan::Op& op, const Instance& instance);
  comm::Group& group_of(const plan::Op& op) const;
  SentBytes sent_of(const plan::Op& op) const;  // until now, in the op's group
  comm::Group& open_group(const plan::Op& op, const plan::Program& program);
  void copy_own(const plan::Op& op, std::byte* to, const plan::Access& from);
  float* floats_at(const plan::Access& access) const;

  // run_exchange.cpp
  void run_input(const plan::Op& op, const Instance& instance);
  void run_output(const plan::Op& op, Instance& instance);

  // Constant after construction
  const plan::Plan& plan_;
  const model::ModelSpec& spec_;
  const ExecutorOptions options_;
  memory::Arena host_, control_;
  Decision* decision_ = nullptr;  // in the control arena; null for inference
  std::unique_ptr<kernels::Device> host_device_, opened_device_;
  kernels::Device* device_ = nullptr;  // computes segments
  std::unique_ptr<kernels::DeviceMemory> device_memory_;
  std::array<std::unique_ptr<kernels::PinnedMemory>, 2> pinned_;  // the arenas above
  std::unique_ptr<io::Volume> volume_;
  io::RateLimiter limiter_;
  std::array<std::unique_ptr<io::Channel>, plan::kLaneCount> channels_;
  const std::vector<bool> fresh_moments_;  // by op of `load`; used if it is the first program
  kernels::Parallel parallel_;
  std::array<std::unique_ptr<kernels::Queue>, plan::kLaneCount> queues_;  // null: an I/O lane
  std::array<std::unique_ptr<Work>, plan::kLaneCount> works_;  // null: a lane without ops
  int lane_count_ = 0;                                         // with ops
  std::unique_ptr<SegmentCompute> compute_;                    // null where the caller computes
  std::vector<double> norm_scratch_;                           // Owned by the comm lane
  std::vector<std::byte> norm_workspace_;                      // Owned by the optimizer lane
  // Of groups whose values lie on a device, and what the op in progress may touch. Owned by the
  // group's lane.
  std::array<std::unique_ptr<DeviceGroup>, plan::kGroupCount> device_groups_;
  std::array<std::vector<kernels::MemoryRange>, plan::kGroupCount> exchanged_ranges_;
  std::vector<comm::GatherRange> gather_scratch_;                  // Owned by the comm lane
  std::vector<comm::ReduceRange> reduce_scratch_;                  // Owned by the comm lane
  std::array<std::vector<InFlight>, plan::kLaneCount> in_flight_;  // Owned by each lane

  Progress progress_;

  static constexpr int64_t kOutstanding = 4;
  std::array<Instance*, kOutstanding> instances_ = {};  // by sequence; published by submitted_
  // By sequence: whether the second side of extents with two is live when the instance begins.
  // Written by submit() of the preceding instance, or by Decide of the one before that. Why it is
  // written when IoWork::address_of() reads it is said there.
  std::array<bool, kOutstanding> second_is_live_ = {};
  std::atomic<int64_t> submitted_ = 0;
  std::array<int64_t, plan::kLaneCount> next_base_ = {};  // Owned by the submitter
  plan::ProgramName last_program_ = plan::ProgramName::kLoad;
  std::unique_ptr<DeviceUses> device_uses_;  // null unless a caller computes on a device
  std::unique_ptr<DeviceWatch> watch_;       // null unless a GPU computes the whole program
  std::unique_ptr<StateWriter> writer_;      // Owned by the submitter; null until the first put()
  std::vector<std::jthread> lanes_;

  // Owned by the caller's compute thread
  Cursor external_;
  double external_begin_s_ = 0;
  bool zeroes_ = false;  // of the open use
};

}  // namespace strata::exec
