// SPDX-License-Identifier: Apache-2.0
#include "engine/config/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <memory>
#include <variant>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/config_file.h"
#include "engine/config/json.h"
#include "engine/config/nearest_name.h"
#include "engine/config/option_table.h"
#include "engine/config/toml_reader.h"

namespace strata::config {
namespace {

// Which of two figures is the worse one for a plan.
enum class Worse : uint8_t { kLower, kHigher };

struct FigureRow {
  std::string_view key;
  std::variant<int64_t Machine::*, double Machine::*> field;
  bool required;
  Worse worse;
};

using M = Machine;

constexpr FigureRow kFigures[] = {
    {"device_count", &M::device_count, false, Worse::kLower},
    {"cores", &M::cores, true, Worse::kLower},
    {"host_bytes", &M::host_bytes, true, Worse::kLower},
    {"device_bytes", &M::device_bytes, false, Worse::kLower},
    {"matmul_flops_per_s", &M::matmul_flops_per_s, true, Worse::kLower},
    {"memory_bytes_per_s", &M::memory_bytes_per_s, true, Worse::kLower},
    {"device_memory_bytes_per_s", &M::device_memory_bytes_per_s, false, Worse::kLower},
    {"upload_bytes_per_s", &M::upload_bytes_per_s, false, Worse::kLower},
    {"download_bytes_per_s", &M::download_bytes_per_s, false, Worse::kLower},
    {"peer_bytes_per_s", &M::peer_bytes_per_s, false, Worse::kLower},
    {"network_bytes_per_s", &M::network_bytes_per_s, false, Worse::kLower},
    {"network_latency_s", &M::network_latency_s, false, Worse::kHigher},
    {"nvme_count", &M::nvme_count, false, Worse::kLower},
    {"nvme_bytes", &M::nvme_bytes, false, Worse::kLower},
    {"nvme_read_bytes_per_s", &M::nvme_read_bytes_per_s, false, Worse::kLower},
    {"nvme_write_bytes_per_s", &M::nvme_write_bytes_per_s, false, Worse::kLower},
    {"nvme_mixed_bytes_per_s", &M::nvme_mixed_bytes_per_s, false, Worse::kLower},
    {"nvme_latency_s", &M::nvme_latency_s, false, Worse::kHigher},
    {"nvme_rated_write_bytes", &M::nvme_rated_write_bytes, false, Worse::kLower},
    {"cpu_s_per_io_gb", &M::cpu_s_per_io_gb, false, Worse::kHigher},
    {"checksum_bytes_per_s", &M::checksum_bytes_per_s, false, Worse::kLower},
    {"optimizer_bytes_per_s", &M::optimizer_bytes_per_s, true, Worse::kLower},
    {"matmul_bf16_flops_per_s", &M::matmul_bf16_flops_per_s, false, Worse::kLower},
    {"step_flops_per_s", &M::step_flops_per_s, false, Worse::kLower},
    {"step_bf16_flops_per_s", &M::step_bf16_flops_per_s, false, Worse::kLower},
    {"overlap_speed", &M::overlap_speed, false, Worse::kLower},
    {"op_overhead_s", &M::op_overhead_s, false, Worse::kHigher},
    {"device_op_overhead_s", &M::device_op_overhead_s, false, Worse::kHigher},
};

constexpr std::string_view kWeightsKey = "nvme_weights";

// Parses a figure; sizes and rates may have a suffix ("24GiB", "26GB"). nullopt when `text` is not
// a figure.
std::optional<double> parse_figure(std::string_view text) {
  double number = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error == std::errc() && end == last) {
    return std::isfinite(number) && number >= 0 ? std::optional(number) : std::nullopt;
  }
  const auto bytes = parse_bytes(text);
  return bytes ? std::optional(static_cast<double>(*bytes)) : std::nullopt;
}

// Sets a figure. Returns the cause when the text is not a value of the row.
std::string set_figure(const FigureRow& row, std::string_view text, Machine& machine) {
  const auto figure = parse_figure(text);
  if (!figure) return "is not a number of 0 or more";
  if (const auto* real = std::get_if<double Machine::*>(&row.field)) {
    machine.** real = *figure;
    return "";
  }
  if (row.key.ends_with("_bytes") && *figure > 0 && *figure < static_cast<double>(kMiB)) {
    return fmt::format("has no unit: \"{0:g}GiB\" or \"{0:g}GB\"?", *figure);
  }
  constexpr double kLargest = 9e18;  // below 2^63
  if (*figure != std::floor(*figure) || *figure > kLargest) return "is not a whole number";
  machine.*std::get<int64_t Machine::*>(row.field) = static_cast<int64_t>(*figure);
  return "";
}

double figure_of(const FigureRow& row, const Machine& machine) {
  if (const auto* real = std::get_if<double Machine::*>(&row.field)) return machine.**real;
  return static_cast<double>(machine.*std::get<int64_t Machine::*>(row.field));
}

std::string unknown_key(std::string_view key) {
  std::vector<std::string_view> names = {"name", "device", kWeightsKey};
  for (const FigureRow& row : kFigures) names.push_back(row.key);
  return fmt::format("{} is not a key of machine profiles{}", key,
                     did_you_mean(nearest_name(key, names)));
}

std::string set_weights(const TomlEntry& entry, Machine& machine) {
  machine.nvme_weights.clear();
  for (const std::string& text : entry.values) {
    const auto weight = parse_figure(text);
    if (!weight || *weight <= 0) return fmt::format("{} \"{}\" is not above 0", entry.key, text);
    machine.nvme_weights.push_back(*weight);
  }
  return "";
}

std::string set_entry(const TomlEntry& entry, Machine& machine) {
  if (entry.table.empty() && entry.key == kWeightsKey) return set_weights(entry, machine);
  if (entry.is_empty_table) return "the table " + entry.table + " is not supported";
  if (!entry.table.empty() || entry.values.size() != 1) return entry.key + " is not a single value";
  const std::string& text = entry.values[0];
  if (entry.key == "name") {
    machine.name = text;
    return "";
  }
  if (entry.key == "device") {
    const auto found = std::ranges::find(kDevices, text, &DeviceRow::name);
    if (found == kDevices.end())
      return "device \"" + text + "\" is not cpu, emulated, cuda or unified";
    machine.device = found->kind;
    return "";
  }
  for (const FigureRow& row : kFigures) {
    if (row.key != entry.key) continue;
    const std::string cause = set_figure(row, text, machine);
    return cause.empty() ? "" : fmt::format("{} \"{}\" {}", entry.key, text, cause);
  }
  return unknown_key(entry.key);
}

void find_missing(const Machine& machine, std::vector<std::string>& problems) {
  for (const FigureRow& row : kFigures) {
    if (row.required && figure_of(row, machine) <= 0) {
      problems.push_back(fmt::format("{} must be given and above 0", row.key));
    }
  }
  if (machine.device_count < 1) problems.push_back("device_count must be above 0");
  const bool has_read = machine.nvme_read_bytes_per_s > 0;
  const bool has_write = machine.nvme_write_bytes_per_s > 0;
  const bool has_mixed = machine.nvme_mixed_bytes_per_s > 0;
  if (has_read != has_write || has_read != has_mixed) {
    problems.push_back("nvme_read, nvme_write and nvme_mixed_bytes_per_s must be given together");
  }
  if (!row_of(machine.device).discrete) return;
  if (machine.device_bytes <= 0) problems.push_back("device_bytes must be given for this device");
  if (machine.upload_bytes_per_s <= 0 || machine.download_bytes_per_s <= 0) {
    problems.push_back("upload and download_bytes_per_s must be given for this device");
  }
}

// Keeps letters, digits and dashes; other characters could lead out of the directory.
std::string file_name_part(std::string_view text) {
  std::string part;
  for (const char letter : text) {
    const bool plain = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                       (letter >= '0' && letter <= '9');
    part += plain ? letter : '-';
  }
  return part;
}

// FNV-1a, to distinguish keys that file_name_part() makes equal.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char letter : text)
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  return hash;
}

}  // namespace

Machine parse_machine(std::string_view toml, std::string_view name) {
  const size_t first = toml.find_first_not_of(" \t\r\n");
  if (first != toml.npos && toml[first] == '{') {
    throw Error(ErrorCode::kConfig,
                fmt::format("cannot use the machine profile {}: it is JSON, and a profile is TOML "
                            "(strata bench io --profile FILE writes one; examples/machines/ has "
                            "some)",
                            name));
  }
  Machine machine;
  std::vector<std::string> problems;
  for (const TomlEntry& entry : read_toml(toml, name)) {
    const std::string cause = set_entry(entry, machine);
    if (!cause.empty()) problems.push_back(entry.where + ": " + cause);
  }
  if (problems.empty()) find_missing(machine, problems);
  if (problems.empty()) return machine;
  std::string message = fmt::format("cannot use the machine profile {}:", name);
  for (const std::string& text : problems) message += "\n  " + text;
  message += "\n  (strata bench io --profile FILE writes one; examples/machines/ has some)";
  throw Error(ErrorCode::kConfig, message);
}

Machine read_machine(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT) {
    throw Error(ErrorCode::kConfig,
                fmt::format("machine: {}: there is no such file (give the path of a profile; "
                            "examples/machines/ has {}, and strata bench io --profile FILE writes "
                            "one)",
                            path, fmt::join(kExampleMachines, ", ")));
  }
  return parse_machine(read_config_file(path), path);
}

std::string to_toml(const Machine& machine) {
  std::string text = fmt::format("name = {}\ndevice = \"{}\"\n", Json(machine.name).dump(),
                                 row_of(machine.device).name);
  for (const FigureRow& row : kFigures) {
    const double figure = figure_of(row, machine);
    if (figure == 0) continue;
    const bool whole = std::holds_alternative<int64_t Machine::*>(row.field);
    const int64_t number = whole ? machine.*std::get<int64_t Machine::*>(row.field) : 0;
    fmt::format_to(std::back_inserter(text), "{} = {}\n", row.key,
                   whole ? fmt::format("{}", number) : fmt::format("{}", figure));
  }
  if (!machine.nvme_weights.empty()) {
    text += fmt::format("{} = [{}]\n", kWeightsKey, fmt::join(machine.nvme_weights, ", "));
  }
  return text;
}

std::string to_json(const Machine& machine) {
  Json object = Json::object();
  object.set("name", machine.name);
  object.set("device", row_of(machine.device).name);
  for (const FigureRow& row : kFigures) {
    if (const auto* real = std::get_if<double Machine::*>(&row.field)) {
      object.set(row.key, machine.**real);
    } else {
      object.set(row.key, machine.*std::get<int64_t Machine::*>(row.field));
    }
  }
  Json weights = Json::array();
  for (const double weight : machine.nvme_weights) weights.push_back(weight);
  object.set(kWeightsKey, std::move(weights));
  return object.dump(2);
}

Machine worst_of(const Machine& a, const Machine& b) {
  Machine worst = a;
  const auto take = [&](const FigureRow& row, const auto& field) {
    const bool lower = row.worse == Worse::kLower;
    worst.*field = lower ? std::min(a.*field, b.*field) : std::max(a.*field, b.*field);
  };
  for (const FigureRow& row : kFigures) {
    std::visit([&](const auto& field) { take(row, field); }, row.field);
  }
  if (a.nvme_weights != b.nvme_weights) worst.nvme_weights.clear();
  if (a.name != b.name) worst.name = a.name + " and " + b.name;
  return worst;
}

std::string machine_cache_path(const std::string& directory, const MachineKey& key) {
  const std::string all = key.host + '\n' + key.nvme + '\n' + key.version;
  return fmt::format("{}/machine-{}-{}-{:016x}.toml", directory, file_name_part(key.host),
                     file_name_part(key.version), hash_of(all));
}

void write_machine(const std::string& path, const Machine& machine) {
  const std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  const std::string text = to_toml(machine);
  std::FILE* file = std::fopen(temporary.c_str(), "wbe");
  if (file == nullptr) throw system_error(ErrorCode::kIo, "cannot create " + temporary, errno);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = std::fclose(file) == 0;
  if (!written || !closed || std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int cause = errno;
    std::remove(temporary.c_str());
    throw system_error(ErrorCode::kIo, "cannot write " + path, cause);
  }
}

}  // namespace strata::config
