// SPDX-License-Identifier: Apache-2.0
// Keeps what was measured for later runs.
#include <fmt/ranges.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "engine/base/error.h"
#include "engine/config/limits.h"
#include "engine/exec/machine_probe.h"

namespace strata::exec {
namespace {

// To be raised when figures are measured in another way, so that older ones are not used.
constexpr int kMethod = 2;

// The path of a profile. Different spellings of the same scratch directories give the same path.
std::string profile_path(const std::string& cache_directory, const std::string& version,
                         const ProbeOptions& options) {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  std::vector<std::string> directories;
  for (const std::string& directory : options.drive.directories) {
    std::error_code error;
    const auto path = std::filesystem::canonical(directory, error);
    directories.push_back(error ? directory : path.string());
  }
  const config::MachineKey key = {
      .host = host,
      .nvme = fmt::format("{}|{}|{}|{}|{}|{}|{}", fmt::join(directories, ","),
                          options.backend->name + options.gpu, static_cast<int>(options.device),
                          options.threads, static_cast<int>(options.drive.backend),
                          options.drive.io_depth, kMethod) +
              (options.is_ample() ? "" : "|little"),
      .version = version};
  return config::machine_cache_path(cache_directory, key);
}

std::optional<config::Machine> read_profile(const std::string& path) {
  try {
    config::Machine machine = config::read_machine(path);
    machine.host_bytes = config::read_limits().usable_bytes();  // the current value
    return machine;
  } catch (const Error&) {
    return std::nullopt;  // missing or unusable
  }
}

// Writes a profile. Returns false when that fails, so that the next run must measure again.
bool keep_profile(const std::string& path, const config::Machine& machine) {
  std::error_code ignored;  // writing fails then
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  try {
    config::write_machine(path, machine);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

void set_network(const comm::NetworkFigures& network, config::Machine& machine) {
  if (network.bytes_per_s <= 0) return;
  machine.network_bytes_per_s = network.bytes_per_s;
  machine.network_latency_s = network.latency_s;
}

config::Machine machine_for(const std::string& cache_directory, const std::string& version,
                            const ProbeOptions& options, bool* was_measured) {
  ProbeOptions ample = options;
  ample.memory_bytes = ProbeOptions::kAmpleBytes;
  std::string path = profile_path(cache_directory, version, ample);
  std::optional<config::Machine> machine = read_profile(path);
  if (!machine) {
    path = profile_path(cache_directory, version, options);
    machine = read_profile(path);
  }
  if (was_measured) *was_measured = !machine;
  if (machine && options.network.bytes_per_s <= 0) return *machine;
  if (!machine) machine = probe_machine(options);
  set_network(options.network, *machine);
  keep_profile(path, *machine);
  return *machine;
}

config::Machine machine_with(const std::string& cache_directory, const std::string& version,
                             const ProbeOptions& options, const DriveFigures& drive,
                             std::string* path) {
  *path = profile_path(cache_directory, version, options);
  ProbeOptions rest = options;
  rest.drive.directories.clear();
  std::optional<config::Machine> machine = read_profile(*path);
  if (!machine) machine = probe_machine(rest);
  set_drive(drive, *machine);
  if (!keep_profile(*path, *machine)) path->clear();
  return *machine;
}

}  // namespace strata::exec
