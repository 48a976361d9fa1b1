// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strata {

inline constexpr int64_t kKiB = 1024;
inline constexpr int64_t kMiB = 1024 * kKiB;
inline constexpr int64_t kGiB = 1024 * kMiB;

// Every extent, slot and registered buffer starts and ends on a page.
inline constexpr int64_t kPageBytes = 4096;

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr int64_t ceil_div(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

// "24GiB", "1.5GB", "512 MiB", "4096": a size in bytes; nullopt when it is not a size.
// KiB/MiB/GiB/TiB and K/M/G/T are powers of 1024, KB/MB/GB/TB powers of 1000.
std::optional<int64_t> parse_bytes(std::string_view text);

// With at most two decimals, and one from 100 on: "1.5 KiB", "42.26 MiB", "120.2 GiB".
std::string format_bytes(int64_t bytes);
// As format_bytes, but never rounded down.
std::string format_bytes_up(int64_t bytes);
// A size for an option, never rounded down: "92MiB", "120.2GiB".
std::string size_option(int64_t bytes);

// Three digits at most: "43.4 ms", "5.8 s", "33 s", "1 min 10 s", "1 h 44 min", "3 days 4 h",
// "2.1 years"; "?" when it is negative or not finite.
std::string format_duration(double seconds);

// Whole below 10,000, then three digits: "1446", "14.4k", "8.03B".
std::string format_count(double count);

}  // namespace strata
