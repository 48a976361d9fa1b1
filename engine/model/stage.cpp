// SPDX-License-Identifier: Apache-2.0
#include "engine/model/stage.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "engine/base/check.h"
#include "engine/base/error.h"

namespace strata::model {
namespace {

// Of forward and backward of a unit, with what backward computes again.
double flops_of(const ModelSpec& spec, int unit, const BatchShape& shape, Recipe recipe,
                const kernels::DeviceDescription& device) {
  double flops = 0;
  for (const int segment : spec.units[unit].segments) {
    const Footprint print = footprint(spec, segment, shape, recipe, device);
    const bool head = spec.segments[segment].kind == SegmentKind::kHead;
    flops += print.backward_flops + (head ? 0 : print.forward_flops + print.recompute_flops);
  }
  return flops;
}

// A unit of one segment without parameters.
void add_end(ModelSpec& spec, SegmentKind kind, const char* name, std::vector<int> inputs) {
  Segment end;
  end.kind = kind;
  end.unit = static_cast<int>(spec.units.size());
  end.name = name;
  end.inputs = std::move(inputs);
  spec.units.push_back({name, {static_cast<int>(spec.segments.size())}});
  spec.segments.push_back(std::move(end));
}

}  // namespace

void require_stages(const ModelSpec& whole, int stages) {
  const auto refuse = [&](const std::string& why, const char* advice) {
    throw Error(ErrorCode::kConfig,
                fmt::format("pipeline-ranks: {}: {} ({})", stages, why, advice));
  };
  if (stages == 1) return;
  if (whole.architecture.tied) {
    refuse("the model's head reads its embedding, and the two would be in different stages",
           "leave the option out; --tensor-ranks and --shard-ranks take such models");
  }
  if (whole.architecture.layers < stages) {
    refuse(fmt::format("the model has {} blocks, and every stage needs one",
                       whole.architecture.layers),
           "give at most as many as there are blocks");
  }
}

std::vector<int> stage_borders(const ModelSpec& whole, int stages, const BatchShape& shape,
                               Recipe recipe, const kernels::DeviceDescription& device) {
  require_stages(whole, stages);
  const int units = static_cast<int>(whole.units.size());
  if (stages == 1) return {0, units};
  std::vector<double> before = {0};  // operations of all units below
  for (int u = 0; u < units; ++u) {
    before.push_back(before.back() + flops_of(whole, u, shape, recipe, device));
  }
  // slowest[k][u]: of the best division of the first u units among k stages, and where its last
  // stage begins. Units 0 and units - 1 are no blocks.
  constexpr double kNone = std::numeric_limits<double>::infinity();
  struct Best {
    double flops = kNone;
    int begin = 0;
  };
  std::vector<std::vector<Best>> slowest(stages + 1, std::vector<Best>(units + 1));
  slowest[0][0].flops = 0;
  for (int k = 1; k <= stages; ++k) {
    const int least_end = k == stages ? units : k + 1;
    const int most_end = k == stages ? units : units - 1 - (stages - k);
    for (int end = least_end; end <= most_end; ++end) {
      for (int begin = k == 1 ? 0 : k; begin < end; ++begin) {
        const bool has_block = std::max(begin, 1) < std::min(end, units - 1);
        const double flops = std::max(slowest[k - 1][begin].flops, before[end] - before[begin]);
        if (has_block && flops < slowest[k][end].flops) slowest[k][end] = {flops, begin};
      }
    }
  }
  std::vector<int> borders(stages + 1, units);
  for (int k = stages; k > 0; --k) borders[k - 1] = slowest[k][borders[k]].begin;
  STRATA_CHECK(borders[0] == 0);
  return borders;
}

ModelSpec stage_slice(const ModelSpec& whole, int stage, const std::vector<int>& borders) {
  const int stages = static_cast<int>(borders.size()) - 1;
  STRATA_CHECK(stage >= 0 && stage < stages && whole.stage.ranks == 1 && whole.uses.empty());
  if (stages == 1) return whole;
  ModelSpec spec;
  spec.architecture = whole.architecture;
  spec.tensor = whole.tensor;
  spec.groups = whole.groups;
  spec.stage = {stage, stages, whole.units[borders[stage]].segments.front()};
  if (stage > 0) add_end(spec, SegmentKind::kReceived, "received", {});
  const int shift = static_cast<int>(spec.segments.size()) - spec.stage.first_segment;
  for (int u = borders[stage]; u < borders[stage + 1]; ++u) {
    Unit unit = whole.units[u];
    for (int& segment : unit.segments) {
      Segment own = whole.segments[segment];
      own.unit = static_cast<int>(spec.units.size());
      for (int& input : own.inputs) input += shift;
      STRATA_CHECK(own.shares < 0 && own.inputs.size() <= 1);
      spec.segments.push_back(std::move(own));
      segment += shift;
    }
    spec.units.push_back(std::move(unit));
  }
  if (stage + 1 < stages) {
    add_end(spec, SegmentKind::kSent, "sent", {static_cast<int>(spec.segments.size()) - 1});
  }
  return spec;
}

}  // namespace strata::model
