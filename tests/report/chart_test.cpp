// SPDX-License-Identifier: Apache-2.0
// Charts keep what matters of long curves, and texts cannot become part of the page.
#include "engine/report/chart.h"

#include <gtest/gtest.h>

#include <cmath>

namespace strata::report {
namespace {

TEST(Chart, ThinningKeepsTheExtremesOfEveryPartInTheirOrder) {
  std::vector<Point> points;
  for (int i = 0; i < 10'000; ++i) points.push_back({double(i), std::sin(i * 0.01)});
  points[1234].y = 50;
  points[7777].y = -50;
  const std::vector<Point> kept = thinned(points, 100);
  EXPECT_LE(kept.size(), 200u);
  EXPECT_GE(kept.size(), 100u);
  EXPECT_EQ(std::count(kept.begin(), kept.end(), points[1234]), 1);
  EXPECT_EQ(std::count(kept.begin(), kept.end(), points[7777]), 1);
  for (size_t i = 1; i < kept.size(); ++i) EXPECT_LT(kept[i - 1].x, kept[i].x);
  EXPECT_EQ(thinned({{1, 2}, {2, 3}}, 100), (std::vector<Point>{{1, 2}, {2, 3}}));
}

TEST(Chart, AGapStaysOneWhenPointsAreThinned) {
  std::vector<Point> points(5'000);
  for (size_t i = 0; i < points.size(); ++i) points[i] = {double(i), i == 2500 ? NAN : 1.0};
  const std::vector<Point> kept = thinned(points, 50);
  EXPECT_EQ(std::count_if(kept.begin(), kept.end(), [](Point at) { return std::isnan(at.y); }), 1);
}

TEST(Chart, AGapBreaksTheLine) {
  const std::string svg =
      line_chart("x", {{"a", 1, {{1, 1}, {2, 2}, {3, NAN}, {4, 4}, {5, 5}}}}, short_number, {});
  const size_t path = svg.find("class=\"line");
  const std::string line = svg.substr(svg.rfind("d=\"", path), path - svg.rfind("d=\"", path));
  EXPECT_EQ(std::count(line.begin(), line.end(), 'M'), 2) << line;
  EXPECT_EQ(svg.find("nan"), svg.npos) << svg;
}

TEST(Chart, OnePointAndNoFiniteNumberAreDrawable) {
  for (const double y : {0.0, 3.0, double(NAN), double(INFINITY)}) {
    const std::string svg = line_chart("x", {{"a", 1, {{7, y}}}}, short_number, {});
    EXPECT_EQ(svg.find("nan"), svg.npos) << svg;
    EXPECT_EQ(svg.find("inf"), svg.npos) << svg;
    EXPECT_EQ(svg.find("<circle") != svg.npos, std::isfinite(y)) << svg;
  }
}

TEST(Chart, TicksAreRoundAndInside) {
  EXPECT_EQ(ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(ticks(1, 9999, 10),
            (std::vector<double>{1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000}));
  for (const double at : ticks(5.31, 5.37, 5)) {
    EXPECT_GE(at, 5.31);
    EXPECT_LE(at, 5.37);
  }
}

TEST(Chart, TextsAreEscaped) {
  EXPECT_EQ(escaped("<script>alert('1')</script> & \"x\""),
            "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt; &amp; &quot;x&quot;");
  EXPECT_EQ(escaped("a\x1b[1mb"), "a\\x1b[1mb");
}

}  // namespace
}  // namespace strata::report
