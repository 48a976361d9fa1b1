// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

// Figures with their spread, as a table and as JSON.
namespace strata::bench {

double median(std::vector<double> values);

// Samples of one figure; the median is what counts.
struct Figure {
  std::string section;
  std::string name;
  std::string unit;
  std::vector<double> samples;
  double at_least = 0;  // a goal; 0: none
  double at_most = 0;   // a goal; 0: none
  bool has_goal() const { return at_least > 0 || at_most > 0; }
  bool met() const;
};

class Report {
 public:
  // Prints the figure as a line of the table at once.
  void add(Figure figure);
  void title(const std::string& text) const;
  void note(const std::string& text);

  void print_goals() const;
  std::string json() const;

 private:
  std::vector<Figure> figures_;
  std::vector<std::string> notes_;
};

}  // namespace strata::bench
