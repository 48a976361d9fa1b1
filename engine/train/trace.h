// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/comm/group.h"
#include "engine/exec/instance.h"
#include "engine/model/spec.h"
#include "engine/plan/plan.h"
#include "engine/train/record_file.h"

namespace strata::train {

// The events of one rank in the Trace Event Format of Chrome and Perfetto: the rank is the process,
// a lane is a thread. A lane with several ops in flight has a thread for each, so that events of a
// thread never overlap; they ascend. Besides, there are threads for the steps, and for what compute
// waits for. Times count from `origin_s`. Threads: one.
class TraceEvents {
 public:
  TraceEvents(const plan::Plan& plan, const model::ModelSpec& spec, double origin_s);

  // Takes a step that recorded its times; `begin_s` is when the step before was over.
  void add(int64_t step, const exec::Instance& instance, double begin_s);
  // Up to `count` of the events that are left, each as an object with a comma and a line end after
  // it; empty when none is left. The instance must still be there.
  std::string take(size_t count);
  bool has_more() const { return instance_ != nullptr; }

 private:
  std::string announce();
  std::string name_thread(int thread, const std::string& name) const;
  std::string op_event(size_t lane, const exec::MeasuredTime& time);
  std::string stall_event(const exec::MeasuredStall& stall);
  int64_t ns_of(double time_s) const;

  // Constant after construction
  const plan::Plan& plan_;
  const model::ModelSpec& spec_;
  const double origin_s_;

  std::array<std::vector<int64_t>, plan::kLaneCount> track_ends_ns_;
  int64_t steps_end_ns_ = 0;
  int64_t stalls_end_ns_ = 0;
  bool has_names_ = false;
  // The step whose events are taken
  const exec::Instance* instance_ = nullptr;
  int64_t step_ = 0;
  double step_begin_s_ = 0;
  bool is_announced_ = false;
  size_t lane_ = 0;  // the next event's; after the lanes, the stalls
  size_t at_ = 0;
};

// The trace of all ranks of a run, trace.json in its directory; and lanes.json, the lanes of the
// first traced step, which `strata report` draws. Both appear in one rename.
//
// All ranks make one and call add() and finish() together. Threads: one a rank. Failure: Error.
// Memory: 24 bytes for each op of a traced step that is under way, and some hundred KiB of events;
// on rank 0 those of every rank.
class Trace {
 public:
  // `first` and `count`: the steps to trace. `group`: all ranks; null for one.
  struct Steps {
    int64_t first = 1;
    int64_t count = 0;
    bool contain(int64_t step) const { return step >= first && step - first < count; }
  };
  Trace(const std::string& directory, const plan::Plan& plan, const model::ModelSpec& spec,
        comm::Group* group, Steps steps);

  bool traces(int64_t step) const { return steps_.contain(step); }
  void add(int64_t step, const exec::Instance& instance, double begin_s);
  // Completes trace.json, if any step was traced.
  void finish();

 private:
  bool leads() const { return group_ == nullptr || group_->rank() == 0; }
  bool any_rank(bool asks) const;
  void write_lanes(int64_t step, const exec::Instance& instance) const;

  // Constant after construction
  const std::string directory_;
  const plan::Plan& plan_;
  comm::Group* const group_;
  const Steps steps_;

  TraceEvents events_;
  std::optional<RecordFile> file_;  // on rank 0, from the first traced step on
};

// The steps that the options ask for, of a start that begins with `first_step` and may go to
// `last_step`: from the second step on, where there are enough.
Trace::Steps traced_steps(int64_t count, int64_t from, int64_t first_step, int64_t last_step);

}  // namespace strata::train
