// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <chrono>
#include <optional>
#include <string_view>

namespace strata {

// A day of the calendar that is written as 2024-07-26; nullopt for other texts.
inline std::optional<std::chrono::year_month_day> parse_date(std::string_view text) {
  const auto number = [&](size_t at, size_t digits) {
    unsigned value = 0;
    const char* end = text.data() + at + digits;
    const auto [last, error] = std::from_chars(text.data() + at, end, value);
    return error == std::errc() && last == end ? std::optional(value) : std::nullopt;
  };
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return std::nullopt;
  const auto year = number(0, 4);
  const auto month = number(5, 2);
  const auto day = number(8, 2);
  if (!year || !month || !day) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(*year)),
                                         std::chrono::month(*month), std::chrono::day(*day)};
  return date.ok() ? std::optional(date) : std::nullopt;
}

}  // namespace strata
