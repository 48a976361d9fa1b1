// SPDX-License-Identifier: Apache-2.0
#include "engine/config/option_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <type_traits>

#include "engine/base/check.h"
#include "engine/base/units.h"
#include "engine/config/list_text.h"
#include "engine/config/nearest_name.h"

namespace strata::config {
namespace {

template <typename Number>
std::optional<Number> parse_whole(std::string_view text) {
  Number number = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc() || end != last) return std::nullopt;
  return number;
}

}  // namespace

std::optional<int64_t> parse_whole_number(std::string_view text) {
  return parse_whole<int64_t>(text);
}

namespace {

// Parses a finite number; from_chars also reads "nan" and "inf", which are refused.
std::optional<double> parse_finite(std::string_view text) {
  const auto number = parse_whole<double>(text);
  if (!number || !std::isfinite(*number)) return std::nullopt;
  return number;
}

std::optional<bool> parse_on_off(std::string_view text) {
  if (text == "on" || text == "true") return true;
  if (text == "off" || text == "false") return false;
  return std::nullopt;
}

bool within(const OptionRange& range, double value) {
  const bool above = range.low_open ? value > range.low : value >= range.low;
  const bool below = range.high_open ? value < range.high : value <= range.high;
  return above && below;
}

// Whether a number without a unit is too small to be a size in bytes.
bool lacks_unit(const std::string& text) {
  const auto number = parse_finite(text);
  return number && *number > 0 && *number < static_cast<double>(kMiB);
}

const char* whole_problem(std::string_view text) {
  const bool is_long = !text.empty() && text.find_first_not_of("0123456789") == text.npos;
  return is_long ? "is more than 9223372036854775807" : "is not a whole number";
}

// Parses a rate: "2GB/s" and "2GB" mean the same.
std::optional<int64_t> parse_rate(std::string_view text) {
  if (text.size() > 2 && text.substr(text.size() - 2) == "/s") text.remove_suffix(2);
  return parse_bytes(text);
}

template <typename Texts>
std::string join(const Texts& parts, std::string_view between = ",") {
  return fmt::format("{}", fmt::join(parts, between));
}

// The shortest text from which parse_bytes reads the same number.
std::string size_text(int64_t bytes) {
  if (bytes > 0 && bytes % kGiB == 0) return fmt::format("{}GiB", bytes / kGiB);
  if (bytes > 0 && bytes % kMiB == 0) return fmt::format("{}MiB", bytes / kMiB);
  if (bytes > 0 && bytes % kKiB == 0) return fmt::format("{}KiB", bytes / kKiB);
  return fmt::format("{}{}", bytes, bytes > 0 ? "B" : "");
}

// What is wrong with a path; empty when nothing is. No shell expands paths in files or behind a =.
std::string path_problem(const OptionRow& row, std::string_view path) {
  if (!is_path(row) || path.empty() || (path[0] != '~' && path[0] != '$')) return "";
  return fmt::format(
      "begins with {}, which only a shell replaces: write the whole path, or ./{}...", path[0],
      path[0]);
}

std::string assign_pair(const OptionRow& row, const std::vector<std::string>& parts,
                        Options& options) {
  if (parts.size() != 2) return "needs two numbers";
  const auto first = parse_finite(parts[0]);
  const auto second = parse_finite(parts[1]);
  if (!first || !second) return "is not two finite numbers";
  if (!within(row.range, *first) || !within(row.range, *second)) return "is out of range";
  options.*std::get<Betas Options::*>(row.field) = {*first, *second};
  return "";
}

std::string assign_rates(const OptionRow& row, const std::vector<std::string>& parts,
                         Options& options) {
  if (parts.size() != 2) return "needs two rates: how fast to read, and how fast to write";
  const auto read = parse_rate(parts[0]);
  const auto write = parse_rate(parts[1]);
  if (!read || !write) return "is not two rates";
  if (!within(row.range, static_cast<double>(*read)) ||
      !within(row.range, static_cast<double>(*write))) {
    return "is out of range (bytes a second need a suffix: 2GB,1GB)";
  }
  options.*std::get<DriveLimits Options::*>(row.field) = {*read, *write};
  return "";
}

// The choice that other programs call by another word; else the nearest one.
std::string_view other_word(const OptionRow& row, const std::string& text) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"gpu", "cuda"}, {"nvidia", "cuda"}, {"disk", "nvme"}, {"cpu", "host"}};
  for (const auto& [word, choice] : kWords) {
    if (text == word && std::ranges::count(row.choices, choice) > 0) return choice;
  }
  return nearest_name(text, row.choices);
}

// A choice as tables print it, or as it was called when older files and run records were written.
std::string today_word(const std::string& given) {
  return given == "io_uring" ? "uring" : given == "gloo" ? "tcp" : given;
}

std::string assign_enum(const OptionRow& row, const std::string& given, Options& options) {
  const std::string text = today_word(given);
  const auto found = std::find(row.choices.begin(), row.choices.end(), text);
  if (found == row.choices.end()) {
    return "is unknown" + did_you_mean(other_word(row, text));
  }
  std::get<EnumField>(row.field).set(options, static_cast<int>(found - row.choices.begin()));
  return "";
}

// "cuda:1". Only the device may be numbered, so the number's field is known.
std::string assign_device(const OptionRow& row, const std::string& text, Options& options) {
  const size_t colon = text.find(':');
  Options changed = options;
  const std::string cause = assign_enum(row, text.substr(0, colon), changed);
  if (!cause.empty()) return cause;
  std::optional<int64_t> index = -1;
  if (colon != text.npos) {
    const bool numbered = changed.device != Device::kAuto && is_gpu(changed.device);
    if (!numbered) return "has a number, but there is only one of it (leave the number out)";
    constexpr int64_t kMost = 1023;
    index = parse_whole<int64_t>(std::string_view(text).substr(colon + 1));
    if (!index || *index < 0 || *index > kMost)
      return "has no number after the colon (give one such as cuda:1)";
  }
  options.device = changed.device;
  options.device_index = *index;
  return "";
}

std::string assign_list(const OptionRow& row, const std::vector<std::string>& parts,
                        Options& options) {
  if (parts.empty()) return "is empty (leave it out for the default)";
  for (auto part = parts.begin(); part != parts.end(); ++part) {
    if (part->empty()) return "has an empty part";
    if (const std::string wrong = path_problem(row, *part); !wrong.empty()) return wrong;
    if (std::find(parts.begin(), part, *part) != part) return "names " + *part + " twice";
    if (row.choices.empty() || std::ranges::find(row.choices, *part) != row.choices.end()) continue;
    return "has the unknown part " + *part + did_you_mean(nearest_name(*part, row.choices));
  }
  options.*std::get<std::vector<std::string> Options::*>(row.field) = parts;
  return "";
}

std::string assign_texts(const OptionRow& row, const std::vector<std::string>& texts,
                         Options& options) {
  const bool lacks_text = std::ranges::any_of(texts, &std::string::empty);
  if (lacks_text && !row.may_be_empty) return "is empty";
  options.*std::get<std::vector<std::string> Options::*>(row.field) = texts;
  return "";
}

std::string assign_numbers(const OptionRow& row, const std::vector<std::string>& parts,
                           Options& options) {
  const bool sizes = row.type == OptionType::kSizes;
  if (parts.empty()) return "is empty (leave it out for the default)";
  std::vector<int64_t> numbers;
  for (const std::string& part : parts) {
    const auto number = sizes ? parse_bytes(part) : parse_whole<int64_t>(part);
    if (!number) return "has a part that is not a " + std::string(sizes ? "size" : "whole number");
    if (!within(row.range, static_cast<double>(*number))) return "has a part that is out of range";
    const bool known = std::find(numbers.begin(), numbers.end(), *number) != numbers.end();
    if (known) return "names " + part + " twice";
    numbers.push_back(*number);
  }
  options.*std::get<std::vector<int64_t> Options::*>(row.field) = numbers;
  return "";
}

template <typename Number>
std::string assign_field(const OptionRow& row, const std::optional<Number>& number,
                         const char* cause, Options& options) {
  if (!number) return cause;
  if (!within(row.range, static_cast<double>(*number))) return "is out of range";
  options.*std::get<Number Options::*>(row.field) = *number;
  return "";
}

// Assigns options whose value is one text.
std::string assign_one(const OptionRow& row, const std::string& text, Options& options) {
  switch (row.type) {
    case OptionType::kSwitch:
    case OptionType::kOnOff: {
      const auto on = parse_on_off(text);
      if (!on) return "is neither on nor off";
      options.*std::get<bool Options::*>(row.field) = *on;
      return "";
    }
    case OptionType::kInt:
      return assign_field(row, parse_whole<int64_t>(text), whole_problem(text), options);
    case OptionType::kFloat:
      return assign_field(row, parse_finite(text), "is not a finite number", options);
    case OptionType::kSize:
      if (lacks_unit(text)) return fmt::format("has no unit: {0}GiB or {0}MiB?", text);
      return assign_field(row, parse_bytes(text), "is not a size", options);
    case OptionType::kString:
      if (text.empty() && !row.may_be_empty) return "is empty";
      if (const std::string wrong = path_problem(row, text); !wrong.empty()) return wrong;
      options.*std::get<std::string Options::*>(row.field) = text;
      return "";
    case OptionType::kOptional: {
      const OptionalField& field = std::get<OptionalField>(row.field);
      const auto on = parse_on_off(text);
      if (const std::string wrong = path_problem(row, text); !wrong.empty()) return wrong;
      options.*field.flag = on.value_or(true);
      options.*field.value = on ? "" : text;
      return "";
    }
    case OptionType::kEnum:
      return assign_enum(row, text, options);
    case OptionType::kDevice:
      return assign_device(row, text, options);
    default:
      STRATA_CHECK(false);
      return "";
  }
}

// A range in words: "at least 1", "0 or more", "1 to 1024", "above 0, at most 1".
template <typename Bound>
std::string range_text(const OptionRange& range, const Bound& bound) {
  const bool is_bounded = !std::isinf(range.high);
  if (is_bounded && !range.low_open && !range.high_open) {
    return bound(range.low) + " to " + bound(range.high);
  }
  std::string text = range.low_open   ? "above " + bound(range.low)
                     : range.low == 0 ? bound(range.low) + " or more"
                                      : "at least " + bound(range.low);
  if (is_bounded) text += (range.high_open ? ", below " : ", at most ") + bound(range.high);
  return text;
}

std::string number_text(double value) {
  return fmt::format("{}", value);
}

std::string range_text(const OptionRow& row) {
  if (row.type == OptionType::kSizes) {
    return range_text(row.range,
                      [](double value) { return size_text(static_cast<int64_t>(value)); });
  }
  if (row.type != OptionType::kRates) return range_text(row.range, number_text);
  const auto size = [](double value) { return format_bytes(static_cast<int64_t>(value)); };
  return range_text(row.range, size);
}

}  // namespace

std::string assign(const OptionRow& row, const std::vector<std::string>& values, Options& options) {
  switch (row.type) {
    case OptionType::kPair:
      return assign_pair(row, split_list(values), options);
    case OptionType::kRates:
      return assign_rates(row, split_list(values), options);
    case OptionType::kList:
      return assign_list(row, split_list(values), options);
    case OptionType::kTexts:
      return assign_texts(row, values, options);
    case OptionType::kInts:
    case OptionType::kSizes:
      return assign_numbers(row, split_list(values), options);
    default:
      if (values.size() != 1) return "takes one value, not a list";
      return assign_one(row, values[0], options);
  }
}

std::string value_text(const OptionRow& row, const Options& options) {
  switch (row.type) {
    case OptionType::kSwitch:
    case OptionType::kOnOff:
      return options.*std::get<bool Options::*>(row.field) ? "on" : "off";
    case OptionType::kInt:
      return fmt::format("{}", options.*std::get<int64_t Options::*>(row.field));
    case OptionType::kFloat:
      return fmt::format("{}", options.*std::get<double Options::*>(row.field));
    case OptionType::kSize:
      return size_text(options.*std::get<int64_t Options::*>(row.field));
    case OptionType::kString:
      return options.*std::get<std::string Options::*>(row.field);
    case OptionType::kOptional: {
      const OptionalField& field = std::get<OptionalField>(row.field);
      const std::string& value = options.*field.value;
      return !value.empty() ? value : options.*field.flag ? "on" : "off";
    }
    case OptionType::kList:
    case OptionType::kTexts:
      return join(options.*std::get<std::vector<std::string> Options::*>(row.field));
    case OptionType::kInts:
      return join(options.*std::get<std::vector<int64_t> Options::*>(row.field));
    case OptionType::kSizes: {
      std::vector<std::string> texts;
      for (const int64_t bytes : options.*std::get<std::vector<int64_t> Options::*>(row.field)) {
        texts.push_back(size_text(bytes));
      }
      return join(texts);
    }
    case OptionType::kEnum:
      return std::string(row.choices[std::get<EnumField>(row.field).get(options)]);
    case OptionType::kDevice: {
      const std::string name(row.choices[std::get<EnumField>(row.field).get(options)]);
      return options.device_index < 0 ? name : fmt::format("{}:{}", name, options.device_index);
    }
    case OptionType::kPair: {
      const Betas& pair = options.*std::get<Betas Options::*>(row.field);
      return fmt::format("{},{}", pair.first, pair.second);
    }
    case OptionType::kRates: {
      const DriveLimits& limits = options.*std::get<DriveLimits Options::*>(row.field);
      return size_text(limits.read_bytes_per_s) + "," + size_text(limits.write_bytes_per_s);
    }
  }
  STRATA_CHECK(false);
  return "";
}

std::string assign_number(std::string_view text, const OptionRange& range, double& number) {
  const auto parsed = parse_finite(text);
  if (!parsed) return "is not a finite number";
  if (!within(range, *parsed)) return "is out of range";
  number = *parsed;
  return "";
}

void copy_value(const OptionRow& row, const Options& from, Options& to) {
  const auto copy = [&](const auto& field) {
    using Field = std::decay_t<decltype(field)>;
    if constexpr (std::is_same_v<Field, EnumField>) {
      field.set(to, field.get(from));
      if (row.type == OptionType::kDevice) to.device_index = from.device_index;
    } else if constexpr (std::is_same_v<Field, OptionalField>) {
      to.*field.flag = from.*field.flag;
      to.*field.value = from.*field.value;
    } else {
      to.*field = from.*field;
    }
  };
  std::visit(copy, row.field);
}

std::string accepted_text(const OptionRow& row) {
  switch (row.type) {
    case OptionType::kSwitch:
    case OptionType::kOnOff:
      return "on or off";
    case OptionType::kInt:
      return "a whole number, " + range_text(row);
    case OptionType::kFloat:
      return "a number, " + range_text(row);
    case OptionType::kSize:
      return "a size such as 24GiB";
    case OptionType::kPair:
      return "two numbers separated by a comma, each " + range_text(row);
    case OptionType::kRates:
      return "two sizes a second with a comma between, each " + range_text(row) +
             ", such as 2GB,1GB";
    case OptionType::kList:
      if (row.choices.empty() && is_path(row)) return "paths separated by commas, each once";
      if (row.choices.empty()) return "texts separated by commas, each once";
      return "one or more of " + join(row.choices) + ", each once";
    case OptionType::kTexts:
      return "a text; several times for several";
    case OptionType::kInts:
      return "whole numbers, " + range_text(row) + ", separated by commas, each once";
    case OptionType::kSizes:
      return "sizes, " + range_text(row) + ", separated by commas, each once";
    case OptionType::kEnum:
      return "one of " + join(row.choices, ", ");
    case OptionType::kDevice:
      return "one of " + join(row.choices, ", ") + ", or cuda:N";
    default:
      return is_path(row) ? "a path" : "a text";
  }
}

std::string limits_text(const OptionRow& row) {
  std::string unit = row.unit.empty() ? "" : " " + std::string(row.unit);
  // Help does not name limits that nobody reaches; the error message does.
  constexpr double kReached = 1e5;
  OptionRange shown = row.range;
  if (shown.high > kReached) shown.high = std::numeric_limits<double>::infinity();
  const bool is_one = shown.low == 1 && std::isinf(shown.high);
  if (is_one && unit.ends_with('s')) unit.resize(unit.size() - (unit.ends_with("ches") ? 2 : 1));
  const std::string range = range_text(shown, number_text) + unit;
  switch (row.type) {
    case OptionType::kInt:
    case OptionType::kFloat:
      return range;
    case OptionType::kSize:
      return range + ", such as 24GiB";
    case OptionType::kPair:
    case OptionType::kInts:
      return "each " + range;
    case OptionType::kRates:
      return "each " + range_text(row) + " a second";
    case OptionType::kSizes:
      return "each " + range_text(row);
    default:
      return "";
  }
}

}  // namespace strata::config
