// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/placement_climb.h"

#include <algorithm>
#include <vector>

#include "engine/base/units.h"

namespace strata::plan {
namespace {

constexpr double kLeastGain = 0.002;  // of the step; a smaller gain is within the model's error
constexpr int kFirstPart = 3;         // the first moves are a third of the room
constexpr int kLastPart = 48;

// A purpose that bytes can be moved to or from.
struct Purpose {
  Arena arena;
  std::function<int64_t&(Spending&)> bytes;
};

std::vector<Purpose> purposes(const PlacementSearch& search, bool may_keep) {
  std::vector<Purpose> list;
  for (const ResidencyKind kind :
       {ResidencyKind::kState, ResidencyKind::kWeights, ResidencyKind::kGradients,
        ResidencyKind::kKeep, ResidencyKind::kDeviceWeights, ResidencyKind::kCheckpoints,
        ResidencyKind::kDeviceHome}) {
    if (kind == ResidencyKind::kKeep && !may_keep) continue;
    if (kind == ResidencyKind::kDeviceHome && !search.is_discrete()) continue;
    list.push_back({search.arena_of(kind), [kind](Spending& spending) -> int64_t& {
                      return spending.resident[static_cast<size_t>(kind)];
                    }});
  }
  list.push_back({Arena::kHost, [](Spending& s) -> int64_t& { return s.state_ring; }});
  list.push_back({Arena::kHost, [](Spending& s) -> int64_t& { return s.weights_ring; }});
  list.push_back({Arena::kHost, [](Spending& s) -> int64_t& { return s.activation_ring; }});
  return list;
}

class Climber {
 public:
  Climber(const PlacementSearch& search, const Placement& base, bool may_keep, int tries,
          const std::function<Cost(const Placement&)>& predict)
      : search_(search),
        base_(base),
        may_keep_(may_keep),
        tries_(tries),
        predict_(predict),
        purposes_(purposes(search, may_keep)) {}

  Climb run(const Placement& start, const Cost& start_cost) {
    best_ = {start, start_cost, 0};
    spent_ = start;
    spending_ = search_.spending_of(start);
    if (const auto placement = search_.spend(base_, spending_, may_keep_)) spent_ = *placement;
    for (int part = kFirstPart; part <= kLastPart; part *= 2) {
      while (improve(part)) {
      }
    }
    return best_;
  }

 private:
  int64_t spendable(Arena arena) const {
    const int64_t room = search_.room(base_, arena);
    return room == kNoLimit ? 0 : std::max<int64_t>(room, 0);
  }

  // Tries every move of one part of the room once. Returns true when one made the step shorter.
  bool improve(int part) {
    bool improved = false;
    for (size_t to = 0; to < purposes_.size(); ++to) {
      const Arena arena = purposes_[to].arena;
      const int64_t bytes = spendable(arena) / part / kPageBytes * kPageBytes;
      if (bytes == 0) continue;
      improved |= move(nullptr, purposes_[to], bytes);
      for (size_t from = 0; from < purposes_.size(); ++from) {
        if (from == to || purposes_[from].arena != arena) continue;
        improved |= move(&purposes_[from], purposes_[to], bytes);
      }
    }
    return improved;
  }

  // When `from` is null, uses memory that is not spent yet.
  bool move(const Purpose* from, const Purpose& to, int64_t bytes) {
    if (best_.tried >= tries_) return false;
    Spending spending = spending_;
    if (from != nullptr) {
      int64_t& source = from->bytes(spending);
      bytes = std::min(bytes, source);
      source -= bytes;
    } else {
      bytes = std::min(bytes, search_.room(spent_, to.arena));
    }
    if (bytes < kPageBytes) return false;
    to.bytes(spending) += bytes;
    ++best_.tried;
    const std::optional<Placement> placement = search_.spend(base_, spending, may_keep_);
    if (!placement) return false;
    const Cost cost = predict_(*placement);
    if (cost.predicted_s > best_.cost.predicted_s * (1 - kLeastGain)) return false;
    best_.placement = spent_ = *placement;
    best_.cost = cost;
    const Spending spent = search_.spending_of(spent_);  // rings may have needed less
    spending.weights_ring = spent.weights_ring;
    spending.state_ring = spent.state_ring;
    spending.activation_ring = spent.activation_ring;
    spending_ = spending;
    return true;
  }

  const PlacementSearch& search_;
  const Placement& base_;
  const bool may_keep_;
  const int tries_;
  const std::function<Cost(const Placement&)>& predict_;
  const std::vector<Purpose> purposes_;
  Climb best_;
  Spending spending_;  // of the best placement
  Placement spent_;
};

}  // namespace

Climb climb(const PlacementSearch& search, const Placement& base, const Placement& start,
            const Cost& start_cost, bool may_keep, int tries,
            const std::function<Cost(const Placement&)>& predict) {
  return Climber(search, base, may_keep, tries, predict).run(start, start_cost);
}

}  // namespace strata::plan
