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

// Without zeros at the end.
std::string decimal(double value, int places) {
  std::string text = fmt::format("{:.{}f}", value, places);
  if (places == 0) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

int places_of(double value) {
  return value < 100 ? 2 : 1;
}

double round_up_to(double value, int places) {
  const double factor = std::pow(10.0, places);
  return std::ceil(value * factor) / factor;
}

struct DurationUnits {
  double below_s;
  int64_t large_s, small_s;
  const char *large, *small;
};

}  // namespace

std::string format_bytes(int64_t bytes) {
  const auto [value, unit] = scaled(bytes);
  return fmt::format("{} {}", decimal(value, places_of(value)), unit);
}

std::string format_bytes_up(int64_t bytes) {
  const auto [value, unit] = scaled(bytes);
  const int places = places_of(value);
  return fmt::format("{} {}", decimal(round_up_to(value, places), places), unit);
}

std::string size_option(int64_t bytes) {
  if (bytes < kGiB) return fmt::format("{}MiB", ceil_div(bytes, kMiB));
  const auto [value, unit] = scaled(bytes);
  const int places = value < 10 || bytes >= 1024 * kGiB ? 2 : 1;
  return decimal(round_up_to(value, places), places) + unit;
}

std::string format_duration(double seconds) {
  constexpr int64_t kHour = 3600;
  constexpr int64_t kDay = 24 * kHour;
  constexpr double kYear = 365.25 * kDay;
  constexpr DurationUnits kUnits[] = {
      {600, 60, 1, "min", "s"},
      {kHour, 60, 60, "min", ""},
      {2 * kDay, kHour, 60, "h", "min"},
      {30 * kDay, kDay, kHour, "days", "h"},
      {2 * kYear, kDay, kDay, "days", ""},
  };
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds == 0) return "0 s";
  if (seconds < 99.5e-6) return fmt::format("{:.3g} us", seconds * 1e6);
  if (seconds < 0.0995) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (seconds < 59.95) return fmt::format("{:.3g} s", seconds);
  for (const DurationUnits& units : kUnits) {
    const int64_t whole = std::llround(seconds / static_cast<double>(units.small_s));
    const int64_t in_large = units.large_s / units.small_s;
    if (static_cast<double>(whole * units.small_s) >= units.below_s) continue;
    if (in_large == 1) return fmt::format("{} {}", whole, units.large);
    const int64_t rest = whole % in_large;
    const std::string large = fmt::format("{} {}", whole / in_large, units.large);
    return rest == 0 ? large : fmt::format("{} {} {}", large, rest, units.small);
  }
  return seconds < 1000 * kYear ? fmt::format("{:.3g} years", seconds / kYear)
                                : "more than 1000 years";
}

std::string format_count(double count) {
  constexpr std::array<const char*, 4> kNames = {"k", "M", "B", "T"};
  if (count < 99.95) return fmt::format("{:.3g}", count);
  if (count < 9999.5) return fmt::format("{:.0f}", count);
  size_t index = 0;
  double value = count / 1e3;
  while (value >= 999.5 && index + 1 < kNames.size()) {
    value /= 1e3;
    ++index;
  }
  const int places = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", value, places, kNames[index]);
}

}  // namespace strata
