// SPDX-License-Identifier: Apache-2.0
#include "engine/session/bench.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/config/machine.h"
#include "engine/config/option_rules.h"
#include "engine/train/executor_options.h"
#include "io/drive_weights.h"
#include "io/scratch_file.h"

namespace strata::session {
namespace {

using Problems = std::vector<std::string>;

io::BenchMode mode_of(const std::string& name) {
  constexpr std::array kModes = {io::BenchMode::kRead, io::BenchMode::kWrite,
                                 io::BenchMode::kMixed};
  const auto found = std::find_if(kModes.begin(), kModes.end(),
                                  [&](io::BenchMode mode) { return name == io::name_of(mode); });
  STRATA_CHECK(found != kModes.end());  // the option accepts only these
  return *found;
}

// Adds the first problem of the shapes, because many shapes have the same one.
void check_shapes(const config::Options& options, Problems& problems) {
  try {
    for (const io::BenchShape& shape : shapes_of(options)) {
      io::IoBench::check(shape, static_cast<uint64_t>(options.size));
    }
  } catch (const Error& error) {
    problems.push_back(std::string("--size, --block, --depth, --mode: ") + error.what());
  }
}

void check_directories(const std::vector<std::string>& directories, Problems& problems) {
  try {
    (void)io::free_bytes_of(directories);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kConfig) problems.push_back(error.what());
  }
}

void check_profile(const std::string& path, Problems& problems) {
  if (path.empty()) return;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return problems.push_back("--profile: " + path + ": is a directory (name a file)");
  }
  if (std::filesystem::exists(path, ignored)) {
    try {
      (void)config::read_machine(path);
    } catch (const Error&) {
      return problems.push_back("--profile: " + path +
                                ": exists and is not a machine profile (name another file)");
    }
  }
  const std::string parent = std::filesystem::path(path).parent_path();
  const std::string directory = parent.empty() ? std::string(".") : parent;
  if (access(directory.c_str(), W_OK | X_OK) == 0) return;
  problems.push_back(
      system_error(ErrorCode::kConfig, "--profile: " + path + ": " + directory, errno).what());
}

}  // namespace

void check_bench(const config::Options& options) {
  Problems problems;
  check_shapes(options, problems);
  check_directories(options.nvme, problems);
  check_profile(options.profile, problems);
  if (!problems.empty()) config::refuse_options(problems);
}

io::BenchOptions bench_options(const config::Options& options) {
  io::BenchOptions bench;
  bench.directories = options.nvme;
  bench.bytes = static_cast<uint64_t>(options.size);
  bench.seconds = options.seconds;
  bench.sample_s = std::max(options.seconds / 100, 0.25);
  bench.write_limit_bytes = static_cast<uint64_t>(options.write_limit);
  bench.deadline_s = static_cast<double>(options.io_deadline);
  bench.verify = !options.no_checksums;
  bench.backend = train::io_backend_of(options.io);
  bench.limits.read_bytes_per_s = static_cast<double>(options.nvme_rate.read_bytes_per_s);
  bench.limits.write_bytes_per_s = static_cast<double>(options.nvme_rate.write_bytes_per_s);
  return bench;
}

std::vector<io::BenchShape> shapes_of(const config::Options& options) {
  std::vector<io::BenchShape> shapes;
  for (const int64_t files : options.files) {
    for (const int64_t block : options.blocks) {
      for (const int64_t depth : options.depths) {
        for (const std::string& mode : options.modes) {
          shapes.push_back({.mode = mode_of(mode),
                            .block_bytes = static_cast<uint64_t>(block),
                            .depth = static_cast<uint32_t>(depth),
                            .files = static_cast<uint32_t>(files)});
        }
      }
    }
  }
  return shapes;
}

uint64_t set_weights(io::BenchOptions& options) {
  if (!io::may_differ(options.directories)) return 0;
  const uint64_t writes = options.directories.size() * io::kWeightWriteBytes;
  if (writes + options.bytes >= options.write_limit_bytes) {
    log(LogLevel::kInfo,
        fmt::format("stripes are equal: measuring the speed of each directory writes up to {} more "
                    "than the scratch, which --write-limit does not allow (raise it)",
                    format_bytes(static_cast<int64_t>(writes))));
    return 0;
  }
  const io::DriveWeights measured = io::measure_weights(
      {.directories = options.directories, .deadline_s = options.deadline_s, .stop = options.stop});
  options.weights = measured.weights;
  return measured.bytes_written;
}

}  // namespace strata::session
