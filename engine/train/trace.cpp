// SPDX-License-Identifier: Apache-2.0
#include "engine/train/trace.h"

#include <fmt/format.h>
#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "engine/base/blocking_call.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/comm/text_exchange.h"
#include "engine/plan/op_contract.h"
#include "engine/text/text_files.h"
#include "engine/train/lanes.h"
#include "engine/train/run_directory.h"

namespace strata::train {
namespace {

using plan::Lane;

constexpr size_t kBlock = 1024;  // events that ranks send at once
constexpr int kStepsThread = 1;
constexpr int kStallsThread = 2;

int thread_of(size_t lane, size_t track) {
  return static_cast<int>(10 + 100 * lane + track);
}

std::string quoted(const std::string& text) {
  return config::Json(text).dump();
}

// "forward b1.attn mb0", "fetch b0.mlp"
std::string name_of(const plan::Op& op, const model::ModelSpec& spec) {
  std::string name = plan::contract_of(op.kind).name;
  if (op.segment >= 0) name += " " + spec.segments[static_cast<size_t>(op.segment)].name;
  if (op.micro_batch >= 0) name += fmt::format(" mb{}", op.micro_batch);
  return name;
}

struct Interval {
  int64_t begin_ns;
  int64_t end_ns;
};

// Microseconds with three digits, exactly.
std::string microseconds(int64_t ns) {
  return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
}

std::string event(const std::string& name, const char* category, const Interval& time, int rank,
                  int thread, const std::string& arguments) {
  return fmt::format(
      "{{\"name\":{},\"cat\":\"{}\",\"ph\":\"X\",\"ts\":{},\"dur\":{},\"pid\":{},\"tid\":{},"
      "\"args\":{{{}}}}},\n",
      quoted(name), category, microseconds(time.begin_ns),
      microseconds(time.end_ns - time.begin_ns), rank, thread, arguments);
}

std::string metadata(const char* what, int rank, int thread, const std::string& value) {
  return fmt::format(
      "{{\"name\":\"{}\",\"ph\":\"M\",\"ts\":0,\"pid\":{},\"tid\":{},\"args\":{}}},\n", what, rank,
      thread, value);
}

}  // namespace

TraceEvents::TraceEvents(const plan::Plan& plan, const model::ModelSpec& spec, double origin_s)
    : plan_(plan), spec_(spec), origin_s_(origin_s) {}

// Nothing of a traced step happened before the origin, up to rounding.
int64_t TraceEvents::ns_of(double time_s) const {
  return std::max<int64_t>(0, std::llround((time_s - origin_s_) * 1e9));
}

std::string TraceEvents::name_thread(int thread, const std::string& name) const {
  return metadata("thread_name", plan_.mesh.rank, thread,
                  fmt::format("{{\"name\":{}}}", quoted(name))) +
         metadata("thread_sort_index", plan_.mesh.rank, thread,
                  fmt::format("{{\"sort_index\":{}}}", thread));
}

void TraceEvents::add(int64_t step, const exec::Instance& instance, double begin_s) {
  instance_ = &instance;
  step_ = step;
  step_begin_s_ = begin_s;
  lane_ = at_ = 0;
  is_announced_ = false;
}

// The step itself, and the first time the names of the process and of the threads that each has.
std::string TraceEvents::announce() {
  is_announced_ = true;
  const int rank = plan_.mesh.rank;
  std::string text;
  if (!has_names_) {
    text = metadata("process_name", rank, 0, fmt::format("{{\"name\":\"rank {}\"}}", rank)) +
           metadata("process_sort_index", rank, 0, fmt::format("{{\"sort_index\":{}}}", rank)) +
           name_thread(kStepsThread, "steps") + name_thread(kStallsThread, "compute waits");
    has_names_ = true;
  }
  const int64_t begin_ns = std::max(steps_end_ns_, ns_of(step_begin_s_));
  steps_end_ns_ = std::max(begin_ns, ns_of(instance_->end_s));
  return text + event(fmt::format("step {}", step_), "step", {begin_ns, steps_end_ns_}, rank,
                      kStepsThread, fmt::format("\"step\":{}", step_));
}

std::string TraceEvents::op_event(size_t lane, const exec::MeasuredTime& time) {
  const plan::Program& program = plan_.program(instance_->program);
  const plan::Op& op = program.ops[time.op];
  const Interval interval = {ns_of(time.begin_s), std::max(ns_of(time.begin_s), ns_of(time.end_s))};
  std::vector<int64_t>& ends = track_ends_ns_[lane];
  const auto free =
      std::ranges::find_if(ends, [&](int64_t end) { return end <= interval.begin_ns; });
  const auto track = static_cast<size_t>(free - ends.begin());
  std::string text;
  if (free == ends.end()) {
    ends.push_back(0);
    std::string name = plan::name_of(static_cast<Lane>(lane));
    if (track > 0) name += fmt::format(" {}", track + 1);
    text = name_thread(thread_of(lane, track), name);
  }
  ends[track] = interval.end_ns;
  const auto& ops = program.lanes[lane];
  const auto place = std::lower_bound(ops.begin(), ops.end(), time.op) - ops.begin() + 1;
  std::string arguments = fmt::format("\"step\":{},\"place\":{}", step_, place);
  if (op.bytes > 0) arguments += fmt::format(",\"bytes\":{}", op.bytes);
  if (op.flops > 0) arguments += fmt::format(",\"flops\":{:.0f}", op.flops);
  if (op.chunk >= 0) {
    arguments += fmt::format(",\"chunk\":{},\"chunks\":{}", op.chunk, op.chunk_count);
  }
  return text + event(name_of(op, spec_), plan::contract_of(op.kind).name, interval,
                      plan_.mesh.rank, thread_of(lane, track), arguments);
}

std::string TraceEvents::stall_event(const exec::MeasuredStall& stall) {
  const int64_t begin_ns = std::max(stalls_end_ns_, ns_of(stall.begin_s));
  stalls_end_ns_ = std::max(begin_ns, ns_of(stall.end_s));
  return event(std::string("waits for ") + plan::name_of(stall.lane), "stall",
               {begin_ns, stalls_end_ns_}, plan_.mesh.rank, kStallsThread,
               fmt::format("\"step\":{}", step_));
}

std::string TraceEvents::take(size_t count) {
  std::string text;
  if (instance_ == nullptr) return text;
  if (!is_announced_) text = announce();
  while (count > 0 && lane_ <= instance_->times.size()) {
    const bool is_stalls = lane_ == instance_->times.size();
    const size_t size = is_stalls ? instance_->stalls.size() : instance_->times[lane_].size();
    if (at_ == size) {
      ++lane_;
      at_ = 0;
      continue;
    }
    text += is_stalls ? stall_event(instance_->stalls[at_])
                      : op_event(lane_, instance_->times[lane_][at_]);
    ++at_;
    --count;
  }
  if (lane_ > instance_->times.size()) instance_ = nullptr;
  return text;
}

Trace::Trace(const std::string& directory, const plan::Plan& plan, const model::ModelSpec& spec,
             comm::Group* group, Steps steps)
    : directory_(directory),
      plan_(plan),
      group_(group),
      steps_(steps),
      events_(plan, spec, now_s()) {}

bool Trace::any_rank(bool asks) const {
  double count = asks ? 1 : 0;
  if (group_ != nullptr) group_->all_reduce_sum(&count, 1);
  return count > 0;
}

void Trace::write_lanes(int64_t step, const exec::Instance& instance) const {
  config::Json json = lanes_json(measured_lanes(plan_, instance));
  json.set("step", step);
  text::write_text_file(directory_ + "/" + kLanesFile, json.dump() + "\n");
}

void Trace::add(int64_t step, const exec::Instance& instance, double begin_s) {
  if (leads() && !file_) {
    write_lanes(step, instance);
    file_.emplace("trace", directory_ + "/" + kTracePartFile, 0);
    file_->append("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
  }
  events_.add(step, instance, begin_s);
  bool more = true;
  while (more) {
    const std::string block = events_.take(kBlock);
    for (const std::string& text : comm::gather_texts(group_, block)) file_->append(text);
    more = any_rank(events_.has_more());
  }
}

// JSON has no comma after the last element, so the last one is an event of the end.
void Trace::finish() {
  if (!file_) return;
  file_->append("{\"name\":\"end\",\"ph\":\"M\",\"ts\":0,\"pid\":0,\"tid\":0,\"args\":{}}\n]}\n");
  file_.reset();
  const std::string part = directory_ + "/" + kTracePartFile;
  const BlockingCall call("rename", part);
  if (::rename(part.c_str(), (directory_ + "/" + kTraceFile).c_str()) == 0) return;
  throw system_error(ErrorCode::kIo, "cannot rename: " + part, errno);
}

Trace::Steps traced_steps(int64_t count, int64_t from, int64_t first_step, int64_t last_step) {
  const int64_t usual = std::min(first_step + 1, last_step - count + 1);
  return {std::max(first_step, from > 0 ? from : usual), count};
}

}  // namespace strata::train
