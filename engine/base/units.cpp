// SPDX-License-Identifier: Apache-2.0
#include "engine/base/units.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

namespace strata {
namespace {

struct Suffix {
  std::string_view text;
  double factor;
};

constexpr std::array<Suffix, 14> kSuffixes = {{{"", 1},
                                               {"b", 1},
                                               {"k", 1024.0},
                                               {"kib", 1024.0},
                                               {"kb", 1e3},
                                               {"m", 1048576.0},
                                               {"mib", 1048576.0},
                                               {"mb", 1e6},
                                               {"g", 1073741824.0},
                                               {"gib", 1073741824.0},
                                               {"gb", 1e9},
                                               {"t", 1099511627776.0},
                                               {"tib", 1099511627776.0},
                                               {"tb", 1e12}}};

}  // namespace

std::optional<int64_t> parse_bytes(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  std::string suffix;
  for (const char* at = end; at != text.data() + text.size(); ++at) {
    if (*at != ' ') suffix += static_cast<char>(std::tolower(static_cast<unsigned char>(*at)));
  }
  for (const Suffix& known : kSuffixes) {
    if (suffix != known.text) continue;
    const double bytes = number * known.factor;
    if (bytes >= static_cast<double>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(std::llround(bytes));
  }
  return std::nullopt;
}

namespace {

struct Scaled {
  double value;
  const char* unit;
};

Scaled scaled(int64_t bytes) {
  constexpr std::array<const char*, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t index = 0;
  while (value >= 1024 && index + 1 < kNames.size()) {
    value /= 1024;
    ++index;
  }
  return {value, kNames[index]};
}

}  // namespace

std::string format_bytes(int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  const auto [value, unit] = scaled(bytes);
  return fmt::format("{:.2f} {}", value, unit);
}

std::string format_bytes_up(int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  const auto [value, unit] = scaled(bytes);
  return fmt::format("{:.2f} {}", std::ceil(value * 100) / 100, unit);
}

}  // namespace strata
