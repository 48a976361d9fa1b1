// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/c/c_fixture.h"

// What random calls of the C API expect: a model of a store's states says which calls succeed.
namespace strata::test {

// A use of a micro-batch, by its index in the order.
struct Pass {
  size_t use;
  int micro_batch;
};

// A checkpoint that a store has written.
struct Saved {
  std::string path;
  int64_t steps = 0;
  bool frozen = false;  // as StoreModel::frozen
  std::vector<float> weights;
};

struct StoreModel {
  enum class Phase { kBetween, kStep, kForward };

  bool open = false;
  int units = 0;
  bool sealed = false;   // an order or a plan ended the adding of units
  bool planned = false;  // no other order can be declared
  bool loaded = false;
  bool frozen = false;  // the last unit is
  bool on_drive = false;
  bool may_leave_out = false;
  int micro_batches = 1;
  std::vector<Use> order;
  int64_t steps = 0;
  bool has_seconds = false;  // a step was done since the load

  Phase phase = Phase::kBetween;
  std::vector<Pass> passes;  // of the step or forward
  size_t next = 0;           // of them
  int micro_batch = 0;       // that is open
  bool acquired = false;
  int64_t left_out = 0;
  bool has_infinity = false;  // in a gradient

  bool is_ready() const { return open && loaded && phase == Phase::kBetween; }
  bool is_in(Phase one) const { return open && loaded && phase == one; }
  bool is_done() const { return next == passes.size(); }
  const Use& next_use() const { return order[passes[next].use]; }
  bool is_frozen(int32_t unit) const { return frozen && unit == kUnits - 1; }

  void order_up_and_down() {
    order.clear();
    for (int32_t unit = 0; unit < units; ++unit) order.push_back({{unit}, STRATA_FORWARD});
    for (int32_t unit = units; unit-- > 0;) order.push_back({{unit}, STRATA_BACKWARD});
  }
  void plan() {
    if (order.empty()) order_up_and_down();
    sealed = planned = true;
  }
  void load(int64_t at_step) {
    plan();
    loaded = true;
    steps = at_step;
    has_seconds = false;
    end();
  }
  void unload() {
    loaded = false;
    end();
  }
  void begin(Phase one) {
    end();
    phase = one;
    for (int m = 0; m < (one == Phase::kStep ? micro_batches : 1); ++m) {
      for (size_t use = 0; use < order.size(); ++use) {
        if (one == Phase::kStep || order[use].pass == STRATA_FORWARD) passes.push_back({use, m});
      }
    }
  }
  void end() {
    phase = Phase::kBetween;
    passes.clear();
    next = 0;
    micro_batch = 0;
    acquired = false;
    left_out = 0;
    has_infinity = false;
  }

  // The pass that acquire(unit, pass) begins, or passes.size() if it is an error.
  size_t found(int32_t unit, int32_t pass) const {
    if (phase == Phase::kBetween || acquired || is_done()) return passes.size();
    if (phase == Phase::kForward && pass == STRATA_BACKWARD) return passes.size();
    for (size_t i = next; i < passes.size(); ++i) {
      if (passes[i].micro_batch != passes[next].micro_batch) break;
      const Use& use = order[passes[i].use];
      if (use.units.front() == unit && use.pass == pass) return i;
      if (!may_leave_out) break;
    }
    return passes.size();
  }
  void leave_out_until(size_t pass) {
    left_out += static_cast<int64_t>(pass - next);
    next = pass;
  }
  void acquire(size_t pass) {
    leave_out_until(pass);
    micro_batch = passes[pass].micro_batch;
    acquired = true;
  }
  void release() {
    acquired = false;
    ++next;
  }
  size_t end_of_micro_batch() const {
    size_t pass = next;
    while (pass < passes.size() && passes[pass].micro_batch <= micro_batch) ++pass;
    return pass;
  }
  bool can_end_micro_batch() const {
    const bool is_open = end_of_micro_batch() > next;
    return phase != Phase::kBetween && !acquired && (may_leave_out || !is_open);
  }
  void end_micro_batch() {
    leave_out_until(end_of_micro_batch());
    ++micro_batch;
  }
  bool can_end(Phase one) const { return is_in(one) && !acquired && (may_leave_out || is_done()); }
};

}  // namespace strata::test
