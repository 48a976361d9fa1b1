// SPDX-License-Identifier: Apache-2.0
#include "engine/model/stage.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "engine/base/check.h"
#include "engine/base/error.h"

namespace strata::model {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

// Of forward and backward of a unit, with what backward computes again.
double flops_of(const ModelSpec& spec, int unit, const BatchShape& shape, Recipe recipe,
                const kernels::DeviceDescription& device) {
  double flops = 0;
  for (const int segment : spec.units[unit].segments) {
    const Footprint print = footprint(spec, segment, shape, recipe, device);
    const bool head = spec.segments[segment].kind == SegmentKind::kHead;
    flops += print.backward_flops;
    if (!head) flops += 2 * print.key_flops + print.forward_flops + print.recompute_flops;
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

void append_section(const ModelSpec& whole, int number, const Division& division, ModelSpec& spec) {
  const int first = division.borders[number];
  const int end = division.borders[number + 1];
  Section section = {.number = number,
                     .first_unit = static_cast<int>(spec.units.size()),
                     .first_segment = static_cast<int>(spec.segments.size()),
                     .whole_segment = whole.units[first].segments.front()};
  if (number > 0) add_end(spec, SegmentKind::kReceived, "received", {});
  const int shift = static_cast<int>(spec.segments.size()) - section.whole_segment;
  for (int u = first; u < end; ++u) {
    Unit unit = whole.units[u];
    for (int& segment : unit.segments) {
      Segment own = whole.segments[segment];
      own.unit = static_cast<int>(spec.units.size());
      for (int& input : own.inputs) input += shift;
      // The embedding is segment 0 of the model and of the rank that has it.
      const bool has_shared = number > 0 && division.route.embeds_on_last;
      STRATA_CHECK(own.inputs.size() <= 1 && (own.shares < 0 || (own.shares == 0 && has_shared)));
      spec.segments.push_back(std::move(own));
      segment += shift;
    }
    spec.units.push_back(std::move(unit));
  }
  if (number + 1 < division.route.sections()) {
    add_end(spec, SegmentKind::kSent, "sent", {static_cast<int>(spec.segments.size()) - 1});
  }
  section.end_unit = static_cast<int>(spec.units.size());
  section.end_segment = static_cast<int>(spec.segments.size());
  spec.stage.sections.push_back(section);
}

// How unevenly operations are divided among the ranks and among sections; infinite where a section
// has no block. before[u]: the operations of all units below u.
double unevenness(const Division& division, const std::vector<double>& before) {
  const Route& route = division.route;
  const int head = division.borders.back() - 1;
  std::vector<double> of_ranks(static_cast<size_t>(route.ranks), 0);
  double squares = 0;
  for (int s = route.embeds_on_last ? 1 : 0; s < route.sections(); ++s) {
    const int begin = division.borders[s];
    const int end = division.borders[s + 1];
    if (std::max(begin, 1) >= std::min(end, head)) return kNone;
    const double flops = before[end] - before[begin];
    of_ranks[route.rank_of(s)] += flops;
    squares += flops * flops;
  }
  for (const double flops : of_ranks) squares += flops * flops;
  return squares;
}

// Moves units from section to section, and the borders between them, as long as that is more even.
void even_out(const std::vector<double>& before, Division& division) {
  const int first = division.route.embeds_on_last ? 1 : 0;
  const int sections = division.route.sections();
  double least = unevenness(division, before);
  for (bool moved = true; moved;) {
    moved = false;
    for (int pair = 0; pair < sections * sections; ++pair) {
      const auto [low, high] = std::minmax({pair / sections, pair % sections});
      const int step = pair / sections == low ? -1 : 1;
      if (low < first) continue;
      Division other = division;
      for (int border = low + 1; border <= high; ++border) other.borders[border] += step;
      const double now = unevenness(other, before);
      if (now >= least) continue;
      division = std::move(other);
      least = now;
      moved = true;
    }
  }
}

}  // namespace

Route route_of(const ModelSpec& whole, int ranks, int laps) {
  if (ranks == 1) return {};
  const int64_t blocks = whole.architecture.layers;
  if (blocks < ranks) {
    throw Error(
        ErrorCode::kConfig,
        fmt::format("pipeline-ranks: {}: the model has {} blocks, and every stage needs one "
                    "(give at most {})",
                    ranks, blocks, blocks));
  }
  if (blocks < int64_t{ranks} * laps) {
    throw Error(ErrorCode::kConfig,
                fmt::format("pipeline-chunks: {}: the model has {} blocks, and each chunk of {} "
                            "ranks needs one (give at most {})",
                            laps, blocks, ranks, blocks / ranks));
  }
  return {ranks, laps, whole.architecture.tied};
}

Division divide(const ModelSpec& whole, const Route& route, const BatchShape& shape, Recipe recipe,
                const kernels::DeviceDescription& device) {
  const int units = static_cast<int>(whole.units.size());
  if (route.ranks == 1) return {route, {0, units}};
  const int from = route.embeds_on_last ? 1 : 0;
  const int count = route.ranks * route.laps;  // of sections with blocks
  std::vector<double> before = {0};            // operations of all units below
  for (int u = 0; u < units; ++u) {
    before.push_back(before.back() + flops_of(whole, u, shape, recipe, device));
  }
  // slowest[k][u]: of the best division of the units from `from` to u among k sections, and where
  // its last section begins. Units 0 and units - 1 are no blocks.
  struct Best {
    double flops = kNone;
    int begin = 0;
  };
  std::vector<std::vector<Best>> slowest(count + 1, std::vector<Best>(units + 1));
  slowest[0][from].flops = 0;
  for (int k = 1; k <= count; ++k) {
    const int least_end = k == count ? units : k + 1;
    const int most_end = k == count ? units : units - 1 - (count - k);
    for (int end = least_end; end <= most_end; ++end) {
      for (int begin = k == 1 ? from : k; begin < end; ++begin) {
        const bool has_block = std::max(begin, 1) < std::min(end, units - 1);
        const double flops = std::max(slowest[k - 1][begin].flops, before[end] - before[begin]);
        if (has_block && flops < slowest[k][end].flops) slowest[k][end] = {flops, begin};
      }
    }
  }
  Division division = {route, std::vector<int>(route.sections() + 1, 0)};
  division.borders.back() = units;
  for (int k = count; k > 0; --k) {
    const int border = from + k;
    division.borders[border - 1] = slowest[k][division.borders[border]].begin;
  }
  STRATA_CHECK(division.borders[from] == from);
  if (route.laps > 1) even_out(before, division);
  return division;
}

ModelSpec stage_slice(const ModelSpec& whole, int rank, const Division& division) {
  const Route& route = division.route;
  STRATA_CHECK(rank >= 0 && rank < route.ranks && whole.stage.route.ranks == 1 &&
               whole.uses.empty());
  if (route.ranks == 1) return whole;
  ModelSpec spec;
  spec.architecture = whole.architecture;
  spec.tensor = whole.tensor;
  spec.groups = whole.groups;
  spec.stage = {rank, route, {}};
  for (int number = 0; number < route.sections(); ++number) {
    if (route.rank_of(number) == rank) append_section(whole, number, division, spec);
  }
  return spec;
}

std::string units_text(const ModelSpec& spec) {
  std::string text;
  for (const Section& section : spec.stage.sections) {
    const bool sends = section.number + 1 < spec.stage.route.sections();
    const std::string& first = spec.units[section.first_unit + (section.number > 0 ? 1 : 0)].name;
    const std::string& last = spec.units[section.end_unit - (sends ? 2 : 1)].name;
    text += text.empty() ? "" : " and ";
    text += first == last ? first : first + " to " + last;
  }
  return text;
}

Section section_of(const ModelSpec& spec, int number) {
  for (const Section& section : spec.stage.sections) {
    if (section.number == number) return section;
  }
  STRATA_CHECK(spec.stage.route.ranks == 1);
  return {.end_unit = static_cast<int>(spec.units.size()),
          .end_segment = static_cast<int>(spec.segments.size())};
}

int Stage::whole_segment(int segment) const {
  for (const Section& section : sections) {
    if (segment >= section.end_segment) continue;
    return section.whole_segment + segment - section.first_segment - (section.number > 0 ? 1 : 0);
  }
  return segment;
}

}  // namespace strata::model
