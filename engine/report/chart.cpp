// SPDX-License-Identifier: Apache-2.0
#include "engine/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "engine/base/log.h"
#include "engine/base/units.h"

namespace strata::report {
namespace {

constexpr double kLeft = 74;  // for the labels of the y axis
constexpr double kRight = 24;
constexpr double kTop = 10;
constexpr double kBottom = 26;
constexpr size_t kBuckets = 400;
constexpr size_t kMostDots = 100;

// From data to the pixels of a chart.
struct Frame {
  double low_x, high_x, low_y, high_y;
  ChartSize size;

  double x(double value) const {
    return kLeft + (value - low_x) / (high_x - low_x) * (size.width - kLeft - kRight);
  }
  double y(double value) const {
    return size.height - kBottom -
           (value - low_y) / (high_y - low_y) * (size.height - kTop - kBottom);
  }
};

std::string begin_svg(const std::string& label, const ChartSize& size) {
  return fmt::format("<svg viewBox=\"0 0 {:g} {:g}\" role=\"img\" aria-label=\"{}\">\n", size.width,
                     size.height, escaped(label));
}

// Lines and labels of both axes.
std::string axes(const Frame& frame, Format format) {
  std::string text = "<g class=\"axis\">";
  for (const double value : ticks(frame.low_y, frame.high_y, 5)) {
    const double y = frame.y(value);
    fmt::format_to(std::back_inserter(text),
                   "<path d=\"M{:g} {:.1f}H{:g}\"/><text x=\"{:g}\" y=\"{:.1f}\" class=\"y\">{}"
                   "</text>",
                   kLeft, y, frame.size.width - kRight, kLeft - 8, y + 4, escaped(format(value)));
  }
  for (const double value : ticks(frame.low_x, frame.high_x, frame.size.width > 700 ? 10 : 5)) {
    if (value != std::floor(value)) continue;
    fmt::format_to(std::back_inserter(text), "<text x=\"{:.1f}\" y=\"{:g}\" class=\"x\">{}</text>",
                   frame.x(value), frame.size.height - 8, format_count(value));
  }
  return text + "</g>\n";
}

// Frames of one point, or of one value, get some room around it.
void widen(double& low, double& high, double room) {
  if (!(low <= high)) {
    low = 0;
    high = 1;
  }
  const double most = std::max(std::abs(low), std::abs(high));
  if (high - low <= most * 1e-12) {
    const double around = most > 0 ? most * 0.1 : 1;
    low -= around;
    high += around;
    return;
  }
  const double more = (high - low) * room;
  low = low >= 0 ? std::max(0.0, low - more) : low - more;  // what cannot be negative begins at 0
  high += more;
}

Frame frame_of(const std::vector<Series>& series, const ChartSize& size) {
  Frame frame = {INFINITY, -INFINITY, INFINITY, -INFINITY, size};
  for (const Series& one : series) {
    for (const Point& point : one.points) {
      frame.low_x = std::min(frame.low_x, point.x);
      frame.high_x = std::max(frame.high_x, point.x);
      if (!std::isfinite(point.y)) continue;
      frame.low_y = std::min(frame.low_y, point.y);
      frame.high_y = std::max(frame.high_y, point.y);
    }
  }
  widen(frame.low_x, frame.high_x, 0);
  widen(frame.low_y, frame.high_y, 0.04);
  return frame;
}

std::string drawn(const Series& series, const Frame& frame) {
  const std::vector<Point> points = thinned(series.points, kBuckets);
  const bool dots = series.has_dots ? points.size() <= kMostDots : points.size() == 1;
  std::string path;
  std::string circles;
  bool joined = false;
  for (const Point& point : points) {
    if (!std::isfinite(point.y)) {
      joined = false;
      continue;
    }
    const double x = frame.x(point.x);
    const double y = frame.y(point.y);
    fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", joined ? "L" : "M", x, y);
    joined = true;
    if (!dots) continue;
    fmt::format_to(std::back_inserter(circles),
                   "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" class=\"f{}\"/>", x, y,
                   series.color);
  }
  return fmt::format("<path d=\"{}\" class=\"line s{}\"/>{}\n", path, series.color, circles);
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char at : printable(text)) {
    switch (at) {
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '&':
        safe += "&amp;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += at;
    }
  }
  return safe;
}

std::vector<Point> thinned(const std::vector<Point>& points, size_t buckets) {
  if (points.size() <= 2 * buckets) return points;
  std::vector<Point> kept;
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    const size_t begin = bucket * points.size() / buckets;
    const size_t end = (bucket + 1) * points.size() / buckets;
    size_t least = end, largest = end, gap = end;
    for (size_t i = begin; i < end; ++i) {
      if (!std::isfinite(points[i].y)) {
        gap = i;
        continue;
      }
      if (least == end || points[i].y < points[least].y) least = i;
      if (largest == end || points[i].y > points[largest].y) largest = i;
    }
    std::vector<size_t> chosen = {least, largest, gap};
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    for (const size_t i : chosen) {
      if (i < end) kept.push_back(points[i]);
    }
  }
  return kept;
}

std::vector<double> ticks(double low, double high, int most) {
  const double rough = (high - low) / most;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = power * 10;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= rough) step = factor * power;
  }
  std::vector<double> values;
  for (double at = std::ceil(low / step); at * step <= high; ++at)
    values.push_back(at * step + 0.0);
  return values;
}

std::string short_number(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e6) return fmt::format("{:.0f}", value);
  return fmt::format("{:.4g}", value);
}

std::string line_chart(const std::string& label, const std::vector<Series>& series, Format format,
                       const ChartSize& size) {
  const Frame frame = frame_of(series, size);
  std::string text = begin_svg(label, size) + axes(frame, format);
  for (const Series& one : series) text += drawn(one, frame);
  return text + "</svg>\n";
}

std::string stacked_chart(const std::string& label, const Stack& stack, Format format,
                          const ChartSize& size) {
  Frame frame = {stack.x.front(), stack.x.back(), 0, 0, size};
  for (const std::vector<double>& parts : stack.heights) {
    double sum = 0;
    for (const double part : parts) sum += part;
    frame.high_y = std::max(frame.high_y, sum);
  }
  frame.high_y = frame.high_y > 0 ? frame.high_y * 1.04 : 1;
  std::string text = begin_svg(label, size) + axes(frame, format);
  std::vector<double> below(stack.heights.size());
  for (size_t part = 0; part < stack.names.size(); ++part) {
    std::string top;
    std::string bottom;
    for (size_t i = 0; i < stack.heights.size(); ++i) {
      const double x = frame.x(stack.x[i]);
      const double next = frame.x(stack.x[i + 1]);
      const double from = frame.y(below[i]);
      below[i] += stack.heights[i][part];
      fmt::format_to(std::back_inserter(top), "{}{:.1f} {:.1f}H{:.1f}", i == 0 ? "M" : "L", x,
                     frame.y(below[i]), next);
      bottom = fmt::format("L{:.1f} {:.1f}H{:.1f}", next, from, x) + bottom;
    }
    text += fmt::format("<path d=\"{}{}Z\" class=\"area f{}\"><title>{}</title></path>\n", top,
                        bottom, stack.colors[part], escaped(stack.names[part]));
  }
  return text + "</svg>\n";
}

std::string legend(const std::vector<LegendEntry>& entries) {
  std::string text = "<p class=\"legend\">";
  for (const LegendEntry& entry : entries) {
    text += fmt::format("<span><i class=\"b{}\"></i>{}</span>", entry.color, escaped(entry.name));
  }
  return text + "</p>\n";
}

}  // namespace strata::report
