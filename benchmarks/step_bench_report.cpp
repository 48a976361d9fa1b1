// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/step_bench_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "engine/config/json.h"

namespace strata::bench {
namespace {

std::string goal_of(const Figure& figure) {
  if (!figure.has_goal()) return "";
  const bool least = figure.at_least > 0;
  return fmt::format("goal {} {:.4g}: {}",
                     least ? ">=" : "<=", least ? figure.at_least : figure.at_most,
                     figure.met() ? "met" : "NOT MET");
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

bool Figure::met() const {
  const double value = median(samples);
  return (at_least <= 0 || value >= at_least) && (at_most <= 0 || value <= at_most);
}

void Report::add(Figure figure) {
  const auto [low, high] = std::minmax_element(figure.samples.begin(), figure.samples.end());
  std::string spread;
  if (figure.samples.size() > 1) {
    spread = fmt::format("[{:.4g} .. {:.4g}] of {}", *low, *high, figure.samples.size());
  }
  fmt::print("  {:<52} {:>9.4g} {:<9} {:<28} {}\n", figure.name, median(figure.samples),
             figure.unit, spread, goal_of(figure));
  std::fflush(stdout);
  figures_.push_back(std::move(figure));
}

void Report::title(const std::string& text) const {
  fmt::print("\n{}\n", text);
  std::fflush(stdout);
}

void Report::note(const std::string& text) {
  fmt::print("  {}\n", text);
  std::fflush(stdout);
  notes_.push_back(text);
}

void Report::print_goals() const {
  int goals = 0;
  int met = 0;
  for (const Figure& figure : figures_) {
    goals += figure.has_goal();
    met += figure.has_goal() && figure.met();
  }
  fmt::print("\n{} of {} goals met\n", met, goals);
}

std::string Report::json() const {
  using config::Json;
  Json list = Json::array();
  for (const Figure& figure : figures_) {
    Json one = Json::object();
    one.set("section", figure.section);
    one.set("name", figure.name);
    one.set("unit", figure.unit);
    one.set("median", median(figure.samples));
    Json samples = Json::array();
    for (const double sample : figure.samples) samples.push_back(sample);
    one.set("samples", std::move(samples));
    if (figure.at_least > 0) one.set("at_least", figure.at_least);
    if (figure.at_most > 0) one.set("at_most", figure.at_most);
    if (figure.has_goal()) one.set("met", figure.met());
    list.push_back(std::move(one));
  }
  Json notes = Json::array();
  for (const std::string& note : notes_) notes.push_back(note);
  Json root = Json::object();
  root.set("figures", std::move(list));
  root.set("notes", std::move(notes));
  return root.dump(2);
}

}  // namespace strata::bench
