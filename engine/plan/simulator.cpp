// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/simulator.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <queue>
#include <utility>

#include "engine/base/check.h"
#include "engine/plan/drive_model.h"
#include "engine/plan/op_contract.h"
#include "engine/plan/sent_bytes.h"

namespace strata::plan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// By lane. The drives work only while bytes move, whatever is issued.
constexpr Workers kWorkersOf[kLaneCount] = {
    kComputeWorks,  kOptimizerWorks, kLinkMoves,      kLinkMoves,    0, 0, 0,
    kRanksExchange, kRanksExchange,  kOptimizerWorks, kRanksExchange};
// The share of the cores that I/O never takes from the other lanes.
constexpr double kLeastCoreShare = 0.05;

constexpr size_t at(Lane lane) {
  return static_cast<size_t>(lane);
}

// Work of a serial lane, in seconds at full speed; its speed may change while it runs.
struct Worker {
  bool active = false;
  double left_s = 0;
  double speed = 1;
  double next_s() const { return active ? left_s / speed : kNever; }
};

struct Completion {
  double time_s = 0;
  int64_t number = 0;
  uint8_t lane = 0;
  bool operator>(const Completion& other) const {
    if (time_s != other.time_s) return time_s > other.time_s;
    return lane != other.lane ? lane > other.lane : number > other.number;
  }
};

// Goes through the ops of a lane in all copies.
struct Cursor {
  int64_t copy = 0;
  size_t place = 0;  // in the lane's list
  void step(size_t count) {
    if (++place < count) return;
    place = 0;
    ++copy;
  }
};

// Ops of a lane are numbered through all copies: op i of copy c is c * count + i.
struct LaneState {
  // Constant after construction.
  std::span<const uint32_t> ops;
  int64_t depth = 1;
  int64_t total = 0;

  int64_t issued = 0;
  int64_t published = 0;
  Cursor next;                // to issue
  Cursor oldest;              // of those not published
  uint32_t waits_held = 0;    // number of the next op's waits that hold, in order
  int blocked_on = -1;        // the lane that it waits for
  int64_t blocked_until = 0;  // until that lane has published this many ops
  std::vector<uint8_t> done;  // by number modulo its size, a power of two

  bool idle() const { return issued == published; }
  bool exhausted() const { return issued == total; }
  uint8_t& done_at(int64_t number) { return done[static_cast<size_t>(number) & (done.size() - 1)]; }
};

// A bit for each lane.
using Lanes = uint32_t;
constexpr Lanes kAllLanes = (Lanes{1} << kLaneCount) - 1;

constexpr Lanes bit_of(size_t lane) {
  return Lanes{1} << lane;
}

// Calls f(lane) for each, in order.
template <class F>
void each(Lanes lanes, F f) {
  for (; lanes != 0; lanes &= lanes - 1) f(static_cast<size_t>(std::countr_zero(lanes)));
}

class Simulation {
 public:
  Simulation(const Plan& plan, ProgramName name, const SimulationOptions& options,
             const Rates& rates, std::span<const double> duration_s, bool fixed)
      : program_(plan.program(name)),
        options_(options),
        rates_(rates),
        duration_s_(duration_s),
        fixed_(fixed),
        chained_(name == ProgramName::kStep),
        sent_(SentCounter::of_slowest(plan.mesh)),
        drive_(rates, plan.io_depth) {
    STRATA_CHECK(options.copies >= 1 && plan.io_depth >= 1);
    STRATA_CHECK(!fixed || duration_s.size() == program_.ops.size());
    for (int i = 0; i < kLaneCount; ++i) {
      LaneState& lane = lanes_[static_cast<size_t>(i)];
      lane.ops = program_.lanes[static_cast<size_t>(i)];
      lane.depth = is_serial(static_cast<Lane>(i)) ? 1 : plan.io_depth;
      lane.total = static_cast<int64_t>(lane.ops.size()) * options.copies;
      lane.done.assign(std::bit_ceil(static_cast<size_t>(lane.depth)), 0);
    }
    const size_t copies = static_cast<size_t>(options.copies);
    left_.assign(copies, static_cast<int64_t>(program_.ops.size()));
    result_.copy_end_s.assign(copies, 0);
    if (options.keep_times) result_.times.resize(copies * program_.ops.size());
    counting_ = options.copies == 1;
  }

  SimulationResult run() {
    if (!program_.ops.empty()) {
      issue_all();
      while (ended_ < options_.copies && advance()) {
        publish_all();
        issue_all();
      }
    }
    finish();
    return std::move(result_);
  }

 private:
  bool waits_hold(LaneState& lane, const Op& op) {
    const auto waits = program_.waits_of(op);
    while (lane.waits_held < waits.size()) {
      const Wait& wait = waits[lane.waits_held];
      const LaneState& other = lanes_[at(wait.lane)];
      // A count of zero or less counts back from the end of the preceding copy, where this copy
      // starts.
      const int64_t target = lane.next.copy * static_cast<int64_t>(other.ops.size()) + wait.count;
      if (other.published < target) {
        lane.blocked_on = static_cast<int>(wait.lane);
        lane.blocked_until = target;
        return false;
      }
      ++lane.waits_held;
    }
    return true;
  }

  bool copy_may_start(LaneState& lane) {
    if (chained_ || lane.next.copy <= ended_) return true;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      const int64_t target = lane.next.copy * static_cast<int64_t>(lanes_[i].ops.size());
      if (lanes_[i].published >= target) continue;
      lane.blocked_on = static_cast<int>(i);
      lane.blocked_until = target;
      return false;
    }
    return true;
  }

  bool is_blocked(const LaneState& lane) const {
    return lane.blocked_on >= 0 &&
           lanes_[static_cast<size_t>(lane.blocked_on)].published < lane.blocked_until;
  }

  // Other lanes cannot issue: neither they nor the lane that blocks them has published since.
  void issue_all() {
    each(std::exchange(may_issue_, 0), [&](size_t i) {
      LaneState& lane = lanes_[i];
      if (!is_blocked(lane)) issue(i, lane);
      if (lane.blocked_on >= 0) waiting_[static_cast<size_t>(lane.blocked_on)] |= bit_of(i);
    });
  }

  void issue(size_t i, LaneState& lane) {
    while (!lane.exhausted() && lane.issued - lane.published < lane.depth) {
      const uint32_t index = lane.ops[lane.next.place];
      const Op& op = program_.ops[index];
      if (!copy_may_start(lane) || !waits_hold(lane, op)) break;
      start(static_cast<Lane>(i), op, index);
      lane.blocked_on = -1;
      lane.waits_held = 0;
      ++lane.issued;
      lane.next.step(lane.ops.size());
      busy_ |= bit_of(i);
    }
  }

  bool runs(const Op& op) const { return op.predicate == Predicate::kAlways || options_.pending; }

  void start(Lane name, const Op& op, uint32_t index) {
    const int64_t number = lanes_[at(name)].issued;
    if (options_.keep_times) time_of(name, number).begin_s = now_s_;
    if (!runs(op)) return end_after(name, number, 0);
    if (fixed_) return end_after(name, number, duration_s_[index]);
    const auto move = [&](double rate, double latency_s) {
      end_after(name, number, link_s(op, rate, latency_s));
    };
    switch (name) {
      case Lane::kCompute:
        compute_ = {true, over(op.flops, rates_.matmul_flops_per_s) + rates_.compute_overhead_s};
        break;
      case Lane::kOptimizer:
        optimizer_ = {true, optimizer_s(op)};
        break;
      case Lane::kReadWeights:
      case Lane::kReadState:
      case Lane::kWrite:
        if (op.bytes == 0) return end_after(name, number, rates_.io_latency_s * parts(op));
        drive_.add(queue_of(name), number, static_cast<double>(op.bytes));
        break;
      case Lane::kUpload:
        return move(rates_.upload_bytes_per_s, rates_.transfer_latency_s);
      case Lane::kDownload:
        return move(rates_.download_bytes_per_s, rates_.transfer_latency_s);
      case Lane::kCommInner:
      case Lane::kComm:
      case Lane::kCommStage:
        return end_after(name, number,
                         rates_.exchange_s(sent_.moved_by(program_, op), on_device(program_, op)));
      case Lane::kUpdate:
        update_ = {true, link_s(op, rates_.device_memory_bytes_per_s,
                                rates_.compute_overhead_s * parts(op))};
        break;
    }
  }

  static double over(double amount, double rate) {
    STRATA_CHECK(amount == 0 || rate > 0);
    return amount == 0 ? 0 : amount / rate;
  }

  static double link_s(const Op& op, double rate, double latency_s) {
    return over(static_cast<double>(op.bytes), rate) + latency_s;
  }
  double optimizer_s(const Op& op) const {
    const double rate = op.kind == OpKind::kConvert ? rates_.read_bytes_per_s
                        : op.kind == OpKind::kSave  ? rates_.write_bytes_per_s
                                                    : rates_.memory_bytes_per_s;
    return link_s(op, rate, rates_.optimizer_overhead_s * parts(op));
  }

  static int queue_of(Lane lane) {
    return static_cast<int>(lane) - static_cast<int>(Lane::kReadWeights);
  }
  static double parts(const Op& op) { return std::max(1, op.chunk_count); }

  const Op& op_of(Lane name, int64_t number) const {
    const std::span<const uint32_t> ops = lanes_[at(name)].ops;
    return program_.ops[ops[static_cast<size_t>(number) % ops.size()]];
  }

  PredictedTime& time_of(Lane name, int64_t number) {
    const LaneState& lane = lanes_[at(name)];
    const auto count = static_cast<int64_t>(lane.ops.size());
    const auto copy = static_cast<size_t>(number / count);
    return result_
        .times[copy * program_.ops.size() + lane.ops[static_cast<size_t>(number % count)]];
  }

  void end_after(Lane name, int64_t number, double duration_s) {
    completions_.push({now_s_ + duration_s, number, static_cast<uint8_t>(name)});
  }

  void end(Lane name, int64_t number) {
    LaneState& lane = lanes_[at(name)];
    lane.done_at(number) = 1;
    done_ |= bit_of(at(name));
    if (options_.keep_times) time_of(name, number).end_s = now_s_;
  }

  void set_speeds() {
    const double moving = drive_.read_rate() + drive_.write_rate();
    const double taken = moving * rates_.io_cpu_s_per_byte / std::max(1, rates_.cores);
    const double free = std::max(kLeastCoreShare, 1 - taken);
    const bool both = compute_.active && optimizer_.active && rates_.shared_cores;
    const double on_device = compute_.active && update_.active ? rates_.device_shared_speed : 1;
    compute_.speed =
        (both ? rates_.shared_speed : 1) * (rates_.shared_cores ? free : 1) * on_device;
    optimizer_.speed = (both ? rates_.shared_speed : 1) * free;
    update_.speed = on_device;
  }

  // Moves the clock to the next event and completes the work that ends there. Returns false when no
  // work is running.
  bool advance() {
    set_speeds();
    const double compute_s = compute_.next_s(), optimizer_s = optimizer_.next_s();
    const double update_s = update_.next_s();
    double dt = std::min({compute_s, optimizer_s, update_s, drive_.next_s()});
    const double listed_s = completions_.empty() ? kNever : completions_.top().time_s;
    const bool listed = listed_s - now_s_ <= dt;
    if (listed) dt = std::max(0.0, listed_s - now_s_);
    if (dt == kNever) return false;
    if (counting_) count(dt);
    now_s_ = listed ? listed_s : now_s_ + dt;
    work(compute_, Lane::kCompute, compute_s <= dt, dt);
    work(optimizer_, Lane::kOptimizer, optimizer_s <= dt, dt);
    work(update_, Lane::kUpdate, update_s <= dt, dt);
    drive_.advance(dt);
    for (const DriveModel::Finished& finished : drive_.finished()) {
      const auto name = static_cast<Lane>(finished.queue + static_cast<int>(Lane::kReadWeights));
      end_after(name, finished.number, rates_.io_latency_s * parts(op_of(name, finished.number)));
    }
    while (!completions_.empty() && completions_.top().time_s <= now_s_) {
      end(static_cast<Lane>(completions_.top().lane), completions_.top().number);
      completions_.pop();
    }
    return true;
  }

  void work(Worker& worker, Lane name, bool ends, double dt) {
    if (!worker.active) return;
    worker.left_s = std::max(0.0, worker.left_s - dt * worker.speed);
    if (!ends) return;
    worker.active = false;
    end(name, lanes_[at(name)].published);
  }

  void publish_all() {
    each(std::exchange(done_, 0), [&](size_t i) {
      LaneState& lane = lanes_[i];
      while (!lane.idle() && std::exchange(lane.done_at(lane.published), 0) != 0) {
        const int64_t copy = lane.oldest.copy;
        lane.oldest.step(lane.ops.size());
        ++lane.published;
        may_issue_ |= bit_of(i) | std::exchange(waiting_[i], 0);
        if (--left_[static_cast<size_t>(copy)] == 0) end_copy(static_cast<int>(copy));
      }
      if (lane.idle()) busy_ &= ~bit_of(i);
    });
  }

  void end_copy(int copy) {
    ++ended_;
    result_.copy_end_s[static_cast<size_t>(copy)] = now_s_;
    if (options_.copies == 1) return;
    if (copy == 0) counting_ = true;
    if (copy == last_counted()) counting_ = false;
  }

  int last_counted() const { return options_.copies - (options_.copies >= 3 ? 2 : 1); }

  void count(double dt) {
    Workers working = 0;
    if (drive_.read_rate() > 0) working |= kDrivesRead;
    if (drive_.write_rate() > 0) working |= kDrivesWrite;
    each(busy_, [&](size_t i) {
      result_.busy_s[i] += dt;
      working |= kWorkersOf[i];
    });
    result_.working_s[working] += dt;
    const LaneState& compute = lanes_[at(Lane::kCompute)];
    if (!compute.idle() || compute.exhausted() || compute.blocked_on < 0) return;
    result_.stall.direct_s[static_cast<size_t>(compute.blocked_on)] += dt;
    result_.stall.root_s[static_cast<size_t>(root_of(compute.blocked_on))] += dt;
  }

  int root_of(int lane) const {
    for (int hops = 0; hops < kLaneCount; ++hops) {
      const LaneState& state = lanes_[static_cast<size_t>(lane)];
      if (!state.idle() || state.blocked_on < 0) break;
      lane = state.blocked_on;
    }
    return lane;
  }

  void finish() {
    const int last = options_.copies == 1 ? 0 : last_counted();
    const int counted = std::max(1, last);
    const double from = options_.copies == 1 ? 0 : result_.copy_end_s[0];
    const auto per_copy = [&](double& seconds) { seconds /= counted; };
    result_.step_s = (result_.copy_end_s[static_cast<size_t>(last)] - from) / counted;
    for (auto* seconds : {&result_.busy_s, &result_.stall.direct_s, &result_.stall.root_s}) {
      std::for_each(seconds->begin(), seconds->end(), per_copy);
    }
    std::for_each(result_.working_s.begin(), result_.working_s.end(), per_copy);
    for (const Op& op : program_.ops) {
      if (!runs(op)) continue;
      result_.bytes[at(op.lane)] += op.bytes;
      const bool reads_files = op.kind == OpKind::kConvert;
      result_.reads_files |= reads_files;
      result_.uses_nvme |= is_io_lane(op.lane) && !reads_files;
      result_.flops += op.flops;
    }
    if (ended_ < options_.copies && !program_.ops.empty()) {
      result_.blocked = why_blocked();
      result_.step_s = kNever;
    }
  }

  std::string why_blocked() const {
    std::string text;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      const LaneState& lane = lanes_[i];
      if (lane.exhausted() || lane.blocked_on < 0) continue;
      const uint32_t index = lane.ops[lane.next.place];
      const Op& op = program_.ops[index];
      const auto waits = program_.waits_of(op);
      const int count = lane.waits_held < waits.size() ? waits[lane.waits_held].count : 0;
      text += fmt::format("{}op {} of copy {} on {} waits for {} {}", text.empty() ? "" : "; ",
                          index, lane.next.copy, name_of(static_cast<Lane>(i)),
                          name_of(static_cast<Lane>(lane.blocked_on)), count);
    }
    return text.empty() ? "an op is on no lane" : text;
  }

  // Constant after construction.
  const Program& program_;
  const SimulationOptions options_;
  const Rates rates_;
  const std::span<const double> duration_s_;
  const bool fixed_;
  const bool chained_;
  const SentCounter sent_;

  double now_s_ = 0;
  std::array<LaneState, kLaneCount> lanes_;
  Lanes busy_ = 0;                              // not idle
  Lanes done_ = 0;                              // an op of it has ended since the last publishing
  Lanes may_issue_ = kAllLanes;                 // it or the lane that blocks it has published
  std::array<Lanes, kLaneCount> waiting_ = {};  // by lane: those that it blocks
  DriveModel drive_;
  Worker compute_, optimizer_, update_;
  std::priority_queue<Completion, std::vector<Completion>, std::greater<>> completions_;
  std::vector<int64_t> left_;  // ops of each copy that are not published
  int ended_ = 0;              // copies
  bool counting_ = false;
  SimulationResult result_;
};

}  // namespace

SimulationResult simulate(const Plan& plan, ProgramName name, const Rates& rates,
                          const SimulationOptions& options) {
  return Simulation(plan, name, options, rates, {}, false).run();
}

SimulationResult simulate(const Plan& plan, ProgramName name, std::span<const double> duration_s,
                          const SimulationOptions& options) {
  return Simulation(plan, name, options, Rates{}, duration_s, true).run();
}

}  // namespace strata::plan
