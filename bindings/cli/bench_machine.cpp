// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/bench_machine.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "bindings/cli/cache_directory.h"
#include "engine/session/setup.h"
#include "io/channel.h"

namespace strata::cli {
namespace {

using Key = std::tuple<uint64_t, uint32_t, uint32_t>;  // block, depth, files

// Orders shapes by their distance from a run's: first by request size (1 MiB), then by number of
// files (one).
std::tuple<double, uint32_t, double> distance(const Key& key) {
  const auto [block, depth, files] = key;
  const io::ChannelOptions run;
  const auto octaves = [](double a, double b) { return std::abs(std::log2(a / b)); };
  return {octaves(static_cast<double>(block), static_cast<double>(run.request_bytes)), files,
          octaves(depth, run.depth)};
}

double sustained_bytes_per_s(const io::BenchResult& result) {
  const io::Cliff cliff = io::find_cliff(result);
  return cliff.found ? cliff.tail_bytes_per_s : result.bytes_per_s();
}

}  // namespace

std::optional<MeasuredDrive> measured_drive(const std::vector<io::BenchResult>& results) {
  constexpr std::array kWanted = {io::BenchMode::kRead, io::BenchMode::kWrite,
                                  io::BenchMode::kMixed};
  std::map<Key, std::map<io::BenchMode, const io::BenchResult*>> groups;
  for (const io::BenchResult& result : results) {
    if (!result.verified || result.empty()) continue;
    groups[{result.shape.block_bytes, result.shape.depth, result.shape.files}][result.shape.mode] =
        &result;
  }
  std::erase_if(groups, [&](const auto& group) {
    return !std::all_of(kWanted.begin(), kWanted.end(),
                        [&](io::BenchMode mode) { return group.second.count(mode) > 0; });
  });
  if (groups.empty()) return std::nullopt;
  const auto nearest = std::min_element(
      groups.begin(), groups.end(),
      [](const auto& a, const auto& b) { return distance(a.first) < distance(b.first); });
  const auto& modes = nearest->second;
  MeasuredDrive drive;
  exec::DriveFigures& figures = drive.figures;
  figures.read_bytes_per_s = sustained_bytes_per_s(*modes.at(io::BenchMode::kRead));
  figures.write_bytes_per_s = sustained_bytes_per_s(*modes.at(io::BenchMode::kWrite));
  figures.mixed_bytes_per_s = sustained_bytes_per_s(*modes.at(io::BenchMode::kMixed));
  figures.cpu_s_per_byte = modes.at(io::BenchMode::kMixed)->cpu_s_per_gb() * 1e-9;
  drive.shape = modes.at(io::BenchMode::kRead)->shape;
  drive.shortest_s = modes.at(io::BenchMode::kRead)->seconds;
  for (const auto& [mode, result] : modes) {
    drive.shortest_s = std::min(drive.shortest_s, result->seconds);
  }
  return drive;
}

void measure_latency(io::IoBench& bench, const io::BenchOptions& options,
                     const std::vector<io::BenchResult>& results, bool last,
                     std::optional<io::BenchResult>& idle) {
  constexpr double kSeconds = 0.3;
  const std::optional<MeasuredDrive> drive = measured_drive(results);
  if (!drive) return;
  const io::ChannelOptions run;
  io::BenchShape shape = drive->shape;
  shape.mode = io::BenchMode::kRead;
  shape.depth = 1;
  constexpr uint64_t kLeastRequests = 8;  // that fit the scratch
  if (options.bytes >= kLeastRequests * run.request_bytes) shape.block_bytes = run.request_bytes;
  if (idle && idle->shape == shape) return;
  if (!bench.is_filled_for(shape)) {
    if (!last) return;
    const bool has_room = bench.write_allowance() >= options.bytes;
    if (!has_room) {
      shape.block_bytes = results.back().shape.block_bytes;
      shape.files = results.back().shape.files;
    }
  }
  idle = bench.measure(shape, kSeconds, true);
}

MeasuredMachine measured_machine(const std::vector<std::string>& directories,
                                 const exec::DriveFigures& drive, bool keep) {
  config::Options options;
  options.nvme = directories;
  const exec::ProbeOptions probe = session::probe_options(options, session::read_facts(options));
  MeasuredMachine measured;
  if (keep) {
    measured.machine =
        exec::machine_with(cache_directory(), STRATA_VERSION, probe, drive, &measured.path);
    return measured;
  }
  exec::ProbeOptions rest = probe;
  rest.drive.directories.clear();
  measured.machine = exec::machine_for(cache_directory(), STRATA_VERSION, rest);
  exec::set_drive(drive, measured.machine);
  return measured;
}

}  // namespace strata::cli
