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
#include "kernels/parallel.h"

namespace strata::exec {

// Split by subject: executor.cpp is life and lanes, io_lane.cpp the lanes that move bytes to and
// from NVMe, run_compute.cpp, run_state.cpp and run_move.cpp what serial ops do.
class Executor::Impl {
 public:
  Impl(const plan::Plan& plan, const model::ModelSpec& spec, const ExecutorOptions& options);
  ~Impl();

  void submit(Instance& instance);
  void wait(Instance& instance);
  SegmentUse ready(int segment, Pass pass);
  void done();
  bool pending() const { return pending_.valid; }
  const char* io_backend() const;
  IoTotals io_totals() const;

 private:
  // The update that waits for its step to come: written by Decide, read by predicated ops and
  // Optimize, ordered by the plan.
  struct Pending {
    bool valid = false;
    double coefficient = 1;
    StepSettings settings;
  };

  // An op in flight on an I/O lane; op == null marks the end of an instance.
  struct Moving {
    Instance* instance = nullptr;
    const plan::Op* op = nullptr;
    uint32_t index = 0;
    size_t transfer_count = 0;
    std::vector<io::Transfer> transfers;
    double begin_s = 0;
  };

  // Where an I/O lane is in the stream of instances.
  struct Cursor {
    int64_t sequence = 0;
    size_t position = 0;
  };

  // executor.cpp
  void lane_main(plan::Lane lane);
  void run_serial(plan::Lane lane);
  Instance* instance_at(int64_t sequence) const;
  void await_waits(const Instance& instance, const plan::Op& op, double* stall_s);
  std::optional<Progress::Target> unmet_wait(const Instance& instance, const plan::Op& op) const;
  int64_t target_of(const Instance& instance, const plan::Wait& wait) const;
  bool runs(const plan::Op& op) const;
  void execute(const plan::Op& op, Instance& instance);
  void finish_lane(Instance& instance);
  void await_over(Instance& instance);
  void end_lanes();
  void abort_groups(const char* why);
  void record(Instance& instance, plan::Lane lane, const OpTime& time);
  const plan::Program& program_of(const Instance& instance) const {
    return plan_.program(instance.program);
  }
  std::byte* at(plan::Arena arena, int64_t offset) const;
  std::byte* at(const plan::Access& access) const { return at(access.arena, access.offset); }

  // io_lane.cpp
  void run_io(plan::Lane lane);
  bool issue_next(plan::Lane lane, Cursor& cursor, std::deque<Moving*>& moving);
  std::optional<Progress::Target> unmet_wait(plan::Lane lane, const Cursor& cursor) const;
  bool has_room(plan::Lane lane, const std::deque<Moving*>& moving) const;
  void prepare(const plan::Op& op, const plan::Program& program, Moving& moving) const;
  bool retire(plan::Lane lane, std::deque<Moving*>& moving);
  void sleep_io(plan::Lane lane, const Cursor& cursor, const std::deque<Moving*>& moving);

  // run_compute.cpp
  void run_compute(const plan::Op& op, Instance& instance);
  SegmentCall call_of(const plan::Op& op, Instance& instance) const;

  // external_lane.cpp
  Instance& external_instance();

  // run_state.cpp
  void run_optimize(const plan::Op& op, const Instance& instance);
  void run_norm(const plan::Op& op, const Instance& instance);
  void run_decide(const plan::Op& op, Instance& instance);
  void run_convert(const plan::Op& op, const Instance& instance);
  void await_pace(int64_t bytes);
  void run_save(const plan::Op& op, const Instance& instance);
  bool has_fresh_moments(const plan::Op& op, const Instance& instance) const;
  ChunkState chunk_state(const plan::Op& op, const Instance& instance, plan::Mode mode) const;

  // run_move.cpp
  void run_copy(const plan::Op& op, const Instance& instance);
  void run_gather(const plan::Op& op, const Instance& instance);
  void run_reduce(const plan::Op& op, const Instance& instance);

  // Constant after construction
  const plan::Plan& plan_;
  const model::ModelSpec& spec_;
  const ExecutorOptions options_;
  memory::Arena host_, device_, control_;
  std::unique_ptr<io::Volume> volume_;
  io::RateLimiter limiter_;
  std::array<std::unique_ptr<io::Channel>, plan::kLaneCount> channels_;
  const std::vector<bool> fresh_moments_;  // by op of `load`, where it is the first program
  kernels::Parallel parallel_;
  std::unique_ptr<SegmentCompute> compute_;                   // null where the caller computes
  std::vector<double> norm_scratch_;                          // Owned by the optimizer lane
  std::vector<std::byte> norm_workspace_;                     // Owned by the optimizer lane
  std::vector<comm::GatherRange> gather_scratch_;             // Owned by the comm lane
  std::vector<comm::ReduceRange> reduce_scratch_;             // Owned by the comm lane
  std::array<std::vector<Moving>, plan::kLaneCount> moving_;  // Owned by each I/O lane

  Progress progress_;
  Pending pending_;

  static constexpr int64_t kOutstanding = 4;
  std::array<Instance*, kOutstanding> instances_ = {};  // by sequence; published by submitted_
  std::atomic<int64_t> submitted_ = 0;
  std::array<int64_t, plan::kLaneCount> next_base_ = {};  // Owned by the submitter
  plan::ProgramName last_program_ = plan::ProgramName::kLoad;
  std::vector<std::thread> lanes_;

  // Owned by the caller's compute thread
  Cursor external_;
  double external_begin_s_ = 0;
};

}  // namespace strata::exec
