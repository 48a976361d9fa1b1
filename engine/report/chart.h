// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

// Charts over the steps of a run as inline SVG, which styles of page.h colour. Colours are numbers
// of that palette, from 1.
namespace strata::report {

// For the text and the attributes of HTML; control characters become \xNN.
std::string escaped(std::string_view text);

struct Point {
  double x = 0;
  double y = 0;
  bool operator==(const Point&) const = default;
};

// Of each of `buckets` ranges of points, the least and the largest by y, in their order; a gap
// (NaN) stays one. Few points stay as they are.
std::vector<Point> thinned(const std::vector<Point>& points, size_t buckets);

struct Series {
  std::string name;
  int color = 1;
  std::vector<Point> points;  // ascending x; a y that is not finite is a gap
  bool has_dots = false;
};

struct ChartSize {
  double width = 1000;
  double height = 230;
};

using Format = std::string (*)(double);

// Lines over steps, with axes.
std::string line_chart(const std::string& label, const std::vector<Series>& series, Format format,
                       const ChartSize& size);

// Heights on top of each other: heights[i][k] is part k from x[i] to x[i + 1]; x has one more.
struct Stack {
  std::vector<std::string> names;
  std::vector<int> colors;
  std::vector<double> x;
  std::vector<std::vector<double>> heights;
};
std::string stacked_chart(const std::string& label, const Stack& stack, Format format,
                          const ChartSize& size);

struct LegendEntry {
  std::string name;
  int color = 1;
};
std::string legend(const std::vector<LegendEntry>& entries);

// Round numbers that divide [low, high], at most `most` and at least two.
std::vector<double> ticks(double low, double high, int most);

// "1234", "0.0123", "5e-05"
std::string short_number(double value);

}  // namespace strata::report
