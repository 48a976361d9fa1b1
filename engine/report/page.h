// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

// The parts of an HTML page that needs no network: its styles are in it, for light and dark. Texts
// are escaped here, except where a parameter is named `html`.
namespace strata::report {

std::string page(std::string_view title, std::string_view html);

// A heading, a sentence below it (may be empty), and what belongs to it.
std::string section(std::string_view heading, std::string_view about, std::string_view html);

struct Tile {
  std::string name;
  std::string value;
  std::string detail;  // may be empty
};
std::string tiles(const std::vector<Tile>& all);

// The first column names the row; the others are aligned to the right.
std::string table(const std::vector<std::string>& head,
                  const std::vector<std::vector<std::string>>& rows);

// A bar that is filled up to `share`, 0 to 1, in parts.
struct BarPart {
  std::string name;
  double share = 0;
  int color = 1;
};
std::string bar(const std::vector<BarPart>& parts);

}  // namespace strata::report
