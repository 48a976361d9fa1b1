// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/pipeline.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/check.h"

namespace strata::plan {
namespace {

// The passes of a stage in their order, without ticks.
std::vector<Phase> order_of(int stage, int stages, const Windows& windows, bool backward) {
  const int count = windows.count;
  const bool alternates = windows.order == PipelineOrder::kOneForwardOneBackward;
  const int ahead = backward && alternates ? std::min(count, stages - stage) : count;
  std::vector<Phase> phases;
  for (int w = 0; w < ahead; ++w) phases.push_back({false, w, 0});
  for (int w = 0; w < count && backward; ++w) {
    phases.push_back({true, w, 0});
    if (w + ahead < count) phases.push_back({false, w + ahead, 0});
  }
  return phases;
}

// When every phase ends, where each begins as soon as its stage is free and what it reads is there.
class Clock {
 public:
  // `phase_s`: of each stage, the time of a forward and of a backward phase.
  Clock(const Windows& windows, bool backward, std::span<const std::array<double, 2>> phase_s)
      : stages_(static_cast<int>(phase_s.size())) {
    std::vector<size_t> next(phase_s.size(), 0);
    std::vector<double> now(phase_s.size(), 0);
    const std::vector<double> unknown(static_cast<size_t>(windows.count), -1);
    ends_.assign(phase_s.size(), {unknown, unknown});
    for (int s = 0; s < stages_; ++s) orders_.push_back(order_of(s, stages_, windows, backward));
    for (bool moved = true; moved;) {
      moved = false;
      for (int s = 0; s < stages_; ++s) {
        for (; next[s] < orders_[s].size(); ++next[s], moved = true) {
          const Phase& phase = orders_[s][next[s]];
          const double ready = given_at(s, phase);
          if (ready < 0) break;
          now[s] = std::max(now[s], ready) + phase_s[s][phase.backward];
          ends_[s][phase.backward][phase.window] = now[s];
        }
      }
    }
    for (int s = 0; s < stages_; ++s) STRATA_CHECK(next[s] == orders_[s].size());
    last_ = *std::ranges::max_element(now);
  }

  const std::vector<Phase>& phases(int stage) const { return orders_[stage]; }
  double end(int stage, bool backward, int window) const { return ends_[stage][backward][window]; }
  double last() const { return last_; }

 private:
  // When the neighbour gives what a phase needs: 0 where it needs nothing, -1 where that is not
  // known yet.
  double given_at(int stage, const Phase& phase) const {
    const int from = phase.backward ? stage + 1 : stage - 1;
    return from < 0 || from == stages_ ? 0 : ends_[from][phase.backward][phase.window];
  }

  const int stages_;
  std::vector<std::vector<Phase>> orders_;
  std::vector<std::array<std::vector<double>, 2>> ends_;
  double last_ = 0;
};

// The most of the intervals [begin, end] at one time. Their begins ascend, and so do their ends.
int most_at_once(const std::vector<std::pair<int, int>>& intervals) {
  size_t most = 1;
  size_t first = 0;  // that has not ended
  for (size_t i = 0; i < intervals.size(); ++i) {
    while (intervals[first].second < intervals[i].first) ++first;
    most = std::max(most, i + 1 - first);
  }
  return static_cast<int>(most);
}

}  // namespace

int32_t number_of(const Message& message, int micro_batch_in_window) {
  STRATA_CHECK(micro_batch_in_window < kMessageNumbers);
  const int kind = (message.backward ? 2 : 0) + message.sender % 2;
  return first_number_of(message.tick) + (4 + kind) * kMessageNumbers + micro_batch_in_window;
}

int32_t number_of_norm_sum(const StageSchedule& schedule) {
  return first_number_of(schedule.ticks) + 4 * kMessageNumbers;
}

StageSchedule schedule_stage(int stage, int stages, const Windows& windows, bool backward) {
  const std::vector<std::array<double, 2>> ticks(static_cast<size_t>(stages), {1, 1});
  const Clock clock(windows, backward, ticks);
  const auto tick = [&](int of, bool back, int window) {
    return static_cast<int>(clock.end(of, back, window));
  };
  StageSchedule schedule;
  schedule.phases = clock.phases(stage);
  for (Phase& phase : schedule.phases) phase.tick = tick(stage, phase.backward, phase.window);
  schedule.ticks = static_cast<int>(clock.last()) + 1;
  std::vector<Message> messages;
  for (int w = 0; w < windows.count; ++w) {
    if (stage > 0) messages.push_back({false, stage - 1, w, tick(stage - 1, false, w)});
    if (stage + 1 < stages && backward) {
      messages.push_back({true, stage + 1, w, tick(stage + 1, true, w)});
    }
  }
  std::ranges::sort(messages, {}, [](const Message& one) { return number_of(one, 0); });

  const int phases = static_cast<int>(schedule.phases.size());
  schedule.receipts.resize(phases + 1);
  std::vector<int> forward(windows.count), back(windows.count), given[2];
  for (auto& each : given) each.resize(windows.count);
  auto next = messages.begin();
  for (int p = 0; p <= phases; ++p) {
    const auto comes_before = [&](const Message& message) {
      if (p == phases) return true;
      const Phase& phase = schedule.phases[p];
      return number_of(message, 0) <
             number_of({phase.backward, stage, phase.window, phase.tick}, 0);
    };
    for (; next != messages.end() && comes_before(*next); ++next) {
      schedule.receipts[p].push_back(*next);
      given[next->backward][next->window] = p;
    }
    if (p < phases) (schedule.phases[p].backward ? back : forward)[schedule.phases[p].window] = p;
  }

  std::vector<std::pair<int, int>> kept, received, gradients;
  for (int w = 0; w < windows.count; ++w) {
    const int end = backward ? back[w] : forward[w];
    kept.emplace_back(forward[w], end);
    received.emplace_back(stage > 0 ? given[0][w] : forward[w], end);
    // The last stage's loss gives gradients in its forward.
    gradients.emplace_back(stage + 1 < stages ? given[1][w] : forward[w], end);
  }
  schedule.kept = most_at_once(kept);
  schedule.received = most_at_once(received);
  schedule.gradients = backward ? most_at_once(gradients) : 1;
  return schedule;
}

double pipeline_step_s(std::span<const double> stage_s, double forward_share,
                       const Windows& windows) {
  std::vector<std::array<double, 2>> phase_s;
  for (const double seconds : stage_s) {
    const double window_s = seconds / windows.count;
    phase_s.push_back({window_s * forward_share, window_s * (1 - forward_share)});
  }
  return Clock(windows, true, phase_s).last();
}

}  // namespace strata::plan
