// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/pipeline.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"

namespace strata::plan {
namespace {

constexpr int kTicksMax = std::numeric_limits<int32_t>::max() - 1;

// The phases of all ranks in their order, with ticks.
class Timetable {
 public:
  Timetable(const model::Route& route, const Windows& windows, bool backward)
      : route_(route),
        windows_(windows.count),
        backward_(backward),
        alternates_(windows.order != PipelineOrder::kAllForward),
        delays_(backward && windows.order == PipelineOrder::kDelayedProducts),
        ranks_(static_cast<size_t>(route.ranks)) {
    const std::vector<int> unknown(static_cast<size_t>(windows_), 0);
    ticks_.assign(static_cast<size_t>(route.sections()), {unknown, unknown});
    const int group = std::min(windows_, route.ranks);
    for (int first = 0; first < windows_; first += group) {
      for (int lap = 0; lap < route.laps; ++lap) {
        for (int w = first; w < std::min(first + group, windows_); ++w) order_.emplace_back(lap, w);
      }
    }
    for (Rank& rank : ranks_) rank.back.assign(static_cast<size_t>(route.laps), 0);
    pass();
    if (route.embeds_on_last) embed();
    for (const Rank& rank : ranks_) last_ = std::max(last_, rank.phases.back().tick);
    if (last_ < kTicksMax) return;
    throw Error(
        ErrorCode::kConfig,
        fmt::format("pipeline-windows: {}: too many for a pipeline of {} ranks (give fewer)",
                    windows_, route.ranks));
  }

  const std::vector<Phase>& phases(int rank) const { return ranks_[rank].phases; }
  int tick(bool backward, int section, int window) const {
    return ticks_[section][backward][window];
  }
  int last() const { return last_; }

 private:
  struct Rank {
    std::vector<Phase> phases;
    size_t forward = 0;               // of order_: phases that are passed
    std::vector<int> back;            // by lap: the next window
    int kept = 0;                     // windows of all laps that wait for their backward
    std::vector<Phase> delayed = {};  // backward phases, of all laps
    size_t products = 0;              // of these: whose products are done
    int held() const { return kept + static_cast<int>(delayed.size() - products); }
  };

  int section_of(int rank, int lap) const {
    return lap * route_.ranks + rank + (route_.embeds_on_last ? 1 : 0);
  }

  // The most that a rank keeps. Its first window comes back after as many phases as this, when all
  // phases take equally long.
  int most_kept(int rank) const {
    const int behind = route_.ranks - 1 - rank;  // ranks
    const int group = std::min(windows_, route_.ranks);
    if (route_.laps == 1) return behind + 1;
    return 2 * behind + (route_.laps - 1) * group + 1;
  }

  bool is_passed(bool backward, int section, int window, int before) const {
    const int tick = ticks_[section][backward][window];
    return tick > 0 && tick < before;
  }

  // All sections of blocks. Forward phases come in one order: through a lap of as many windows as
  // there are ranks, then through the next lap of these. Where it can do both, a rank goes forward
  // and back in turn. It keeps at most most_kept() windows, which is enough for the oldest window
  // to go on: what the rank keeps when that has passed its last lap is no more. Where it can do
  // neither, it does the products that it delayed first.
  void pass() {
    const size_t kinds = delays_ ? 3 : backward_ ? 2 : 1;
    const size_t count = order_.size() * kinds * ranks_.size();
    size_t passed = 0;
    for (int tick = 1; passed < count; ++tick) {
      const size_t before = passed;
      for (int r = 0; r < route_.ranks; ++r) {
        const bool was_back = !ranks_[r].phases.empty() && ranks_[r].phases.back().backward;
        const bool goes = was_back ? goes_forward(r, tick) || goes_back(r, tick)
                                   : goes_back(r, tick) || goes_forward(r, tick);
        if (goes || does_products(r, tick)) ++passed;
      }
      STRATA_CHECK(passed > before);
    }
  }

  bool goes_forward(int r, int tick) {
    Rank& rank = ranks_[r];
    if (rank.forward == order_.size()) return false;
    if (backward_ && alternates_ && rank.kept >= most_kept(r)) return false;
    // With operands of delayed products, no rank has more windows than the first one keeps.
    if (delays_ && rank.held() >= most_kept(0)) return false;
    const auto [lap, window] = order_[rank.forward];
    const int section = section_of(r, lap);
    const bool is_first = section == section_of(0, 0);
    if (!is_first && !is_passed(false, section - 1, window, tick)) return false;
    add(rank, {false, section, window, tick});
    ++rank.forward;
    ++rank.kept;
    return true;
  }

  bool goes_back(int r, int tick) {
    Rank& rank = ranks_[r];
    if (!backward_ || (!alternates_ && rank.forward < order_.size())) return false;
    int best = -1;
    for (int lap = route_.laps; lap-- > 0;) {
      const int window = rank.back[lap];
      if (window == windows_) continue;
      const int section = section_of(r, lap);
      const bool is_last = section + 1 == route_.sections();
      const bool given = is_last ? is_passed(false, section, window, tick)
                                 : is_passed(true, section + 1, window, tick);
      const bool older = best < 0 || window / route_.ranks < rank.back[best] / route_.ranks;
      if (given && older) best = lap;
    }
    if (best < 0) return false;
    add(rank, {true, section_of(r, best), rank.back[best]++, tick});
    --rank.kept;
    if (delays_) rank.delayed.push_back(rank.phases.back());
    return true;
  }

  bool does_products(int r, int tick) {
    Rank& rank = ranks_[r];
    if (rank.products == rank.delayed.size()) return false;
    Phase phase = rank.delayed[rank.products++];
    phase.tick = tick;
    phase.products = true;
    rank.phases.push_back(phase);
    return true;
  }

  void add(Rank& rank, const Phase& phase) {
    rank.phases.push_back(phase);
    ticks_[phase.section][phase.backward][phase.window] = phase.tick;
  }

  // The embedding's phases on the last rank, whose ticks lie between those of blocks: its outputs
  // come a tick early, and its gradients are added when all of the head's are. Their sum is then
  // that of one rank.
  void embed() {
    for (Rank& rank : ranks_) {
      for (Phase& phase : rank.phases) {
        phase.tick = 2 * phase.tick + 1;
        if (phase.products) continue;
        ticks_[phase.section][phase.backward][phase.window] = phase.tick;
      }
    }
    Rank& rank = ranks_.back();
    int tick = rank.phases.back().tick - 1;
    for (int w = 0; w < windows_; ++w) add(rank, {false, 0, w, ticks_[1][0][w] - 3});
    for (int w = 0; w < windows_ && backward_; ++w) {
      tick = std::max(tick + 2, ticks_[1][1][w] + 1);
      add(rank, {true, 0, w, tick});
    }
    std::ranges::sort(rank.phases, {}, &Phase::tick);
  }

  const model::Route route_;
  const int windows_;
  const bool backward_;
  const bool alternates_;
  const bool delays_;
  std::vector<std::pair<int, int>> order_;  // forward, of every rank: lap and window
  std::vector<Rank> ranks_;
  std::vector<std::array<std::vector<int>, 2>> ticks_;  // by section, direction and window
  int last_ = 0;
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

// The places, in the order of phases, of one section's phases and of the receipts for them; the
// second index is the direction.
struct Places {
  explicit Places(int windows) {
    for (auto* places : {&phases, &receipts}) {
      for (auto& each : *places) each.resize(static_cast<size_t>(windows));
    }
  }
  std::array<std::vector<int>, 2> phases, receipts;
  std::vector<int> products;  // empty where none are delayed
};

WindowsAtOnce windows_at_once(const Places& places, bool is_first, bool is_last, bool backward) {
  std::vector<std::pair<int, int>> kept, received, gradients, operands;
  for (size_t w = 0; w < places.phases[0].size(); ++w) {
    const int begin = places.phases[0][w];
    const int end = places.phases[backward][w];
    kept.emplace_back(begin, end);
    received.emplace_back(is_first ? begin : places.receipts[0][w], end);
    // The head's loss gives gradients in its forward.
    gradients.emplace_back(is_last ? begin : places.receipts[1][w], end);
  }
  for (size_t w = 0; w < places.products.size(); ++w) {
    operands.emplace_back(places.phases[1][w], places.products[w]);
  }
  return {most_at_once(kept), most_at_once(received), backward ? most_at_once(gradients) : 1,
          most_at_once(operands)};
}

}  // namespace

bool delays_products(const Windows& windows, const model::Segment& segment) {
  return windows.order == PipelineOrder::kDelayedProducts && segment.trainable_numel > 0 &&
         (segment.kind == model::SegmentKind::kAttention ||
          segment.kind == model::SegmentKind::kMlp);
}

int64_t number_of(const model::Route& route, const Phase& sender, int micro_batch_in_window) {
  STRATA_CHECK(micro_batch_in_window < kMessageNumbers);
  const int rank = route.rank_of(sender.section);
  const bool closes_odd_ring = route.ranks % 2 == 1 && route.sections() > route.ranks;
  const int color = closes_odd_ring && rank + 1 == route.ranks ? 2 : rank % 2;
  const int kind = 8 + (sender.backward ? 3 : 0) + color;
  return first_number_of(sender.tick) + kind * kMessageNumbers + micro_batch_in_window;
}

int64_t number_of_norm_sum(const StageSchedule& schedule) {
  return first_number_of(schedule.ticks) + 8 * kMessageNumbers;
}

StageSchedule schedule_stage(const model::Route& route, int rank, const Windows& windows,
                             bool backward) {
  const Timetable table(route, windows, backward);
  StageSchedule schedule;
  schedule.phases = table.phases(rank);
  schedule.ticks = table.last() + 1;
  std::vector<Phase> messages;
  std::vector<int> own;                                // sections
  std::vector<int> index_of(route.sections() + 1, 0);  // among the own ones
  for (int s = 0; s < route.sections(); ++s) {
    if (route.rank_of(s) != rank) continue;
    index_of[s] = static_cast<int>(own.size());
    own.push_back(s);
    for (int w = 0; w < windows.count; ++w) {
      if (s > 0) messages.push_back({false, s - 1, w, table.tick(false, s - 1, w)});
      if (backward && s + 1 < route.sections()) {
        messages.push_back({true, s + 1, w, table.tick(true, s + 1, w)});
      }
    }
  }
  const auto number = [&](const Phase& sender) { return number_of(route, sender, 0); };
  std::ranges::sort(messages, {}, number);

  const int phases = static_cast<int>(schedule.phases.size());
  schedule.receipts.resize(phases + 1);
  std::vector<Places> places(own.size(), Places(windows.count));
  auto next = messages.begin();
  for (int p = 0; p <= phases; ++p) {
    for (; next != messages.end() && (p == phases || number(*next) < number(schedule.phases[p]));
         ++next) {
      schedule.receipts[p].push_back(*next);
      const int section = next->section + (next->backward ? -1 : 1);
      places[index_of[section]].receipts[next->backward][next->window] = p;
    }
    if (p == phases) break;
    const Phase& phase = schedule.phases[p];
    Places& of = places[index_of[phase.section]];
    // The products of a section's windows are done in their order.
    phase.products ? of.products.push_back(p) : void(of.phases[phase.backward][phase.window] = p);
  }
  for (size_t i = 0; i < own.size(); ++i) {
    schedule.sections.push_back(
        windows_at_once(places[i], own[i] == 0, own[i] + 1 == route.sections(), backward));
  }
  return schedule;
}

double pipeline_step_s(const model::Route& route, std::span<const SectionSeconds> sections,
                       const Windows& windows, double hop_s) {
  const Timetable table(route, windows, true);
  std::vector<Phase> all;
  for (int r = 0; r < route.ranks; ++r) {
    all.insert(all.end(), table.phases(r).begin(), table.phases(r).end());
  }
  std::ranges::stable_sort(all, {}, &Phase::tick);
  std::vector<double> now(static_cast<size_t>(route.ranks), 0);
  const std::vector<double> unknown(static_cast<size_t>(windows.count), 0);
  std::vector<std::array<std::vector<double>, 2>> ends(route.sections(), {unknown, unknown});
  for (const Phase& phase : all) {
    const SectionSeconds& seconds = sections[phase.section];
    const int rank = route.rank_of(phase.section);
    if (phase.products) {
      now[rank] += seconds.products / windows.count;
      continue;
    }
    const int from = phase.section + (phase.backward ? 1 : -1);
    const bool waits = from >= 0 && from < route.sections();
    double ready = waits ? ends[from][phase.backward][phase.window] : 0;
    if (waits && route.rank_of(from) != rank) ready += hop_s;
    const double all_s = phase.backward ? seconds.backward : seconds.forward;
    now[rank] = std::max(now[rank], ready) + all_s / windows.count;
    ends[phase.section][phase.backward][phase.window] = now[rank];
  }
  return *std::ranges::max_element(now);
}

}  // namespace strata::plan
