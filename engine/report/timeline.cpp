// SPDX-License-Identifier: Apache-2.0
#include "engine/report/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "engine/base/units.h"
#include "engine/report/chart.h"

namespace strata::report {
namespace {

using config::Json;

constexpr double kWidth = 1000;
constexpr double kBarsLeft = 110;  // for the names of the lanes
constexpr double kBarsRight = 12;
constexpr double kRow = 22;
constexpr double kBar = 14;
constexpr double kAxis = 24;

struct KindColor {
  std::string_view kind;
  int color;
};

// The legend has this order. Lanes have rows of their own, so kinds of different lanes may share a
// colour; those of one lane do not.
constexpr KindColor kColors[] = {
    {"forward", 1},    {"recompute", 3}, {"backward", 7}, {"weight_gradient", 2}, {"loss", 5},
    {"optimize", 4},   {"norm", 9},      {"decide", 9},   {"fetch", 3},           {"convert", 5},
    {"spill", 2},      {"upload", 5},    {"download", 6}, {"gather", 8},          {"reduce", 4},
    {"all_to_all", 6}, {"send", 6},      {"recv", 8},     {"input", 9},           {"output", 9}};

int color_of(const std::string& kind) {
  const auto at = std::ranges::find(kColors, kind, &KindColor::kind);
  return at == std::end(kColors) ? 9 : at->color;
}

struct Span {
  std::string kind;
  double begin_s;
  double end_s;
};

std::vector<Span> spans_of(const Json& list) {
  std::vector<Span> spans;
  if (!list.is_array()) return spans;
  for (const Json& one : list.items()) {
    if (!one.is_array() || one.items().size() != 3 || !one.items()[0].is_string()) continue;
    const auto begin = one.items()[1].number();
    const auto end = one.items()[2].number();
    if (begin && end && *begin >= 0 && *end >= *begin) {
      spans.push_back({one.items()[0].string(), *begin, *end});
    }
  }
  return spans;
}

const Json::Object& lanes_of(const Json& json) {
  static const Json::Object kNone;
  const Json* lanes = json.find("lanes");
  return lanes != nullptr && lanes->is_object() ? lanes->members() : kNone;
}

// All spans of one kind in a row are one path.
std::string row_of(const config::JsonMember& lane, double y, double scale) {
  std::vector<std::pair<std::string, std::string>> paths;  // by kind
  for (const Span& span : spans_of(lane.value)) {
    auto at = std::ranges::find(paths, span.kind, &std::pair<std::string, std::string>::first);
    if (at == paths.end()) at = paths.insert(at, {span.kind, ""});
    fmt::format_to(std::back_inserter(at->second), "M{:.1f} {:g}h{:.1f}",
                   kBarsLeft + span.begin_s * scale, y,
                   std::max(0.3, (span.end_s - span.begin_s) * scale));
  }
  std::string text = fmt::format("<text x=\"{:g}\" y=\"{:g}\" class=\"y\">{}</text>", kBarsLeft - 8,
                                 y + 4, escaped(lane.name));
  for (const auto& [kind, path] : paths) {
    text += fmt::format("<path d=\"{}\" class=\"bar s{}\"><title>{}: {}</title></path>", path,
                        color_of(kind), escaped(lane.name), escaped(kind));
  }
  return text + "\n";
}

}  // namespace

double end_of(const Json& lanes) {
  double end_s = 0;
  for (const config::JsonMember& lane : lanes_of(lanes)) {
    for (const Span& span : spans_of(lane.value)) end_s = std::max(end_s, span.end_s);
  }
  return end_s;
}

std::string timeline(const std::string& label, const Json& lanes, double end_s) {
  const double end = std::max(end_s, end_of(lanes));
  if (!(end_of(lanes) > 0)) return "";
  const Json::Object& rows = lanes_of(lanes);
  const double height = kRow * static_cast<double>(rows.size()) + kAxis;
  const double scale = (kWidth - kBarsLeft - kBarsRight) / end;
  std::string text = fmt::format(
      "<svg viewBox=\"0 0 {:g} {:g}\" role=\"img\" aria-label=\"{}\">\n"
      "<g class=\"axis\">",
      kWidth, height, escaped(label));
  for (const double at : ticks(0, end, 8)) {
    const double x = kBarsLeft + at * scale;
    text += fmt::format(
        "<path d=\"M{0:.1f} 0V{1:g}\"/><text x=\"{0:.1f}\" y=\"{2:g}\" class=\"x\">{3}</text>", x,
        height - kAxis, height - 6, at == 0 ? "0" : format_duration(at));
  }
  text += "</g>\n";
  double y = kRow / 2;
  for (const config::JsonMember& lane : rows) {
    text += row_of(lane, y, scale);
    y += kRow;
  }
  return text + "</svg>\n";
}

std::string timeline_legend(const std::vector<const Json*>& all) {
  std::vector<std::string> kinds;
  for (const Json* lanes : all) {
    for (const config::JsonMember& lane : lanes_of(*lanes)) {
      for (const Span& span : spans_of(lane.value)) {
        if (std::ranges::find(kinds, span.kind) == kinds.end()) kinds.push_back(span.kind);
      }
    }
  }
  std::vector<LegendEntry> entries;
  for (const KindColor& known : kColors) {
    if (std::ranges::find(kinds, known.kind) == kinds.end() || known.color == 9) continue;
    entries.push_back({std::string(known.kind), known.color});
  }
  return legend(entries);
}

}  // namespace strata::report
