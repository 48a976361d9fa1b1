// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/bench_arguments.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/nearest_name.h"

namespace strata::cli {
namespace {

constexpr std::array kModes = {io::BenchMode::kRead, io::BenchMode::kWrite, io::BenchMode::kMixed,
                               io::BenchMode::kTraining};

io::BenchMode mode_of(const std::string& name) {
  for (const io::BenchMode mode : kModes) {
    if (name == io::name_of(mode)) return mode;
  }
  std::vector<std::string_view> names;
  for (const io::BenchMode mode : kModes) names.emplace_back(io::name_of(mode));
  throw Error(ErrorCode::kUsage, "--mode: " + name + ": none of read, write, mixed, training" +
                                     config::did_you_mean(config::nearest_name(name, names)));
}

void declare_load(CLI::App& io, IoArguments& a) {
  io.add_option("--nvme", a.directories, "Directories to measure, one on each drive")
      ->delimiter(',')
      ->required();
  io.add_option("--size", a.size,
                "Scratch over all directories; larger than the drives' caches is better")
      ->capture_default_str();
  io.add_option("--block", a.blocks, "Request sizes")->delimiter(',')->capture_default_str();
  io.add_option("--depth", a.depths, "Requests in flight, over all files")
      ->delimiter(',')
      ->capture_default_str();
  io.add_option("--files", a.files, "Files in each directory")
      ->delimiter(',')
      ->capture_default_str();
  io.add_option("--mode", a.modes, "read, write, mixed, training")
      ->delimiter(',')
      ->capture_default_str();
  io.add_option("--seconds", a.seconds,
                "Of each measurement; minutes show where a drive's write cache ends")
      ->check(CLI::Range(0.05, 86400.0))
      ->capture_default_str();
  io.add_option("--write-limit", a.write_limit, "The most bytes written, all in all")
      ->capture_default_str();
  io.add_option("--backend", a.backend, "auto, io_uring, threads")
      ->check(CLI::IsMember({"auto", "io_uring", "threads"}))
      ->capture_default_str();
  io.add_option("--nvme-rate", a.rates, "Limit to READ,WRITE bytes per second (1GB,500MB)")
      ->delimiter(',')
      ->expected(2);
  io.add_option("--io-deadline", a.deadline_s,
                "How long a drive may take to answer a request, in seconds")
      ->check(CLI::Range(1.0, 86400.0))
      ->capture_default_str();
  io.add_flag("--no-checksums", a.no_checksums, "The raw path, without verifying what is read");
}

void declare_comparisons(CLI::App& io, IoArguments& a) {
  CLI::Option* json = io.add_flag("--json", a.json, "Print the results as JSON");
  CLI::Option* csv = io.add_flag("--csv", a.csv, "Print the results as CSV")->excludes(json);
  CLI::Option* fio =
      io.add_flag("--compare-fio", a.compare_fio,
                  "Measure fio with the same shapes, turn by turn: exit code 1 when it is faster")
          ->excludes(csv);
  CLI::Option* checksums = io.add_flag("--compare-checksums", a.compare_checksums,
                                       "Measure what checksums cost, with and without by turns")
                               ->excludes(csv)
                               ->excludes(fio);
  io.add_option("--rounds", a.rounds, "Of the comparisons")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  io.add_option("--baseline", a.baseline,
                "JSON of an earlier run: exit code 1 when a shape is slower, in GB/s by more than "
                "--tolerance or in p99 latency by a factor of 3")
      ->excludes(fio)
      ->excludes(checksums);
  io.add_option("--tolerance", a.tolerance, "How much lower than the baseline's a rate may be")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
}

void declare_machine(CLI::App& io, IoArguments& a) {
  CLI::Option* fio = io.get_option("--compare-fio");
  CLI::Option* checksums = io.get_option("--compare-checksums");
  io.add_option("--profile", a.profile,
                "Write this machine's profile, with these drives, for strata plan --machine")
      ->excludes(fio)
      ->excludes(checksums);
  CLI::Option* tokens = io.add_option("--tokens", a.tokens, "Of a step of the run of --for")
                            ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  CLI::Option* model =
      io.add_option("--for", a.model,
                    "Are the drives enough to train this model? A directory or its config.json")
          ->needs(tokens)
          ->excludes(fio)
          ->excludes(checksums);
  tokens->needs(model);
  io.add_option("--sequence-length", a.sequence_length, "Of the run of --for, at most")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->needs(model)
      ->capture_default_str();
  io.add_option("--host-memory", a.host_memory,
                "Budget of the run of --for; most of the machine's where it is not given")
      ->needs(model);
  io.add_option("--machine", a.machine,
                "Profile of the machine of --for, but for its drives (examples/machines); this one "
                "where it is not given")
      ->needs(model);
}

}  // namespace

void declare(CLI::App& io, IoArguments& a) {
  declare_load(io, a);
  declare_comparisons(io, a);
  declare_machine(io, a);
}

uint64_t bytes_of(const std::string& flag, const std::string& text) {
  const std::optional<int64_t> bytes = parse_bytes(text);
  if (!bytes)
    throw Error(ErrorCode::kUsage, flag + ": " + text + ": not a size (write 4MiB, 64GiB)");
  return static_cast<uint64_t>(*bytes);
}

bool measures_drives(const IoArguments& a) {
  const auto has = [&a](io::BenchMode mode) {
    return std::find(a.modes.begin(), a.modes.end(), io::name_of(mode)) != a.modes.end();
  };
  return !a.no_checksums && has(io::BenchMode::kRead) && has(io::BenchMode::kWrite) &&
         has(io::BenchMode::kMixed);
}

namespace {

void check_named_once(const std::vector<io::BenchShape>& shapes) {
  for (auto at = shapes.begin(); at != shapes.end(); ++at) {
    if (std::find(shapes.begin(), at, *at) == at) continue;
    throw Error(ErrorCode::kUsage,
                "--mode, --block, --depth or --files: a value is named twice (name each once)");
  }
}

void check_shapes(const IoArguments& a) {
  const std::vector<io::BenchShape> shapes = shapes_of(a);
  const io::BenchOptions options = options_of(a);
  check_named_once(shapes);
  for (const io::BenchShape& shape : shapes) io::IoBench::check(shape, options.bytes);
  const bool training_alone = std::all_of(
      shapes.begin(), shapes.end(),
      [](const io::BenchShape& shape) { return shape.mode == io::BenchMode::kTraining; });
  if (training_alone && (a.compare_fio || a.compare_checksums)) {
    throw Error(ErrorCode::kUsage,
                std::string(a.compare_fio ? "--compare-fio" : "--compare-checksums") +
                    ": compares read, write and mixed, of which --mode has none");
  }
}

void check_directories(const std::vector<std::string>& directories) {
  for (size_t i = 0; i < directories.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      std::error_code missing;  // says the volume
      if (!std::filesystem::equivalent(directories[k], directories[i], missing)) continue;
      throw Error(ErrorCode::kUsage, "--nvme: " + directories[k] + " and " + directories[i] +
                                         " are one directory, named twice (name each once)");
    }
  }
}

void check_profile(const std::string& path) {
  if (path.empty()) return;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw Error(ErrorCode::kConfig, "--profile: " + path + ": is a directory (name a file)");
  }
  std::string directory = std::filesystem::path(path).parent_path();
  if (directory.empty()) directory = ".";
  if (access(directory.c_str(), W_OK | X_OK) == 0) return;
  throw system_error(ErrorCode::kConfig, "--profile: " + path + ": " + directory, errno);
}

}  // namespace

void check(const IoArguments& a) {
  for (const auto& [flag, value] :
       {std::pair{"--for", a.model}, std::pair{"--profile", a.profile}}) {
    if (value.empty() || measures_drives(a)) continue;
    throw Error(ErrorCode::kUsage, std::string(flag) +
                                       ": needs the modes read, write and mixed, with checksums "
                                       "(leave out --mode and --no-checksums)");
  }
  if (!a.profile.empty() && !a.rates.empty()) {
    throw Error(ErrorCode::kUsage,
                "--profile: a profile is of the drives as they are (leave out --nvme-rate)");
  }
  if (a.compare_fio && !a.rates.empty()) {
    throw Error(ErrorCode::kUsage,
                "--compare-fio: fio would not be limited as we are (leave out --nvme-rate)");
  }
  if (a.compare_checksums && a.no_checksums) {
    throw Error(ErrorCode::kUsage, "--compare-checksums: contradicts --no-checksums");
  }
  if (!(a.tolerance >= 0 && a.tolerance <= 1)) {
    throw Error(ErrorCode::kUsage, "--tolerance: must be a number from 0 to 1");
  }
  if (!(a.deadline_s >= 1)) {
    throw Error(ErrorCode::kUsage, "--io-deadline: must be a number from 1 to 86400");
  }
  if (!a.host_memory.empty()) (void)bytes_of("--host-memory", a.host_memory);
  check_shapes(a);
  check_directories(a.directories);
  check_profile(a.profile);
}

io::BenchOptions options_of(const IoArguments& a) {
  io::BenchOptions options;
  options.directories = a.directories;
  options.bytes = bytes_of("--size", a.size);
  options.seconds = a.seconds;
  options.sample_s = std::max(a.seconds / 100, 0.25);
  options.write_limit_bytes = bytes_of("--write-limit", a.write_limit);
  options.deadline_s = a.deadline_s;
  options.verify = !a.no_checksums;
  options.backend = a.backend == "io_uring"  ? io::Backend::kUring
                    : a.backend == "threads" ? io::Backend::kThreads
                                             : io::Backend::kAuto;
  if (!a.rates.empty()) {
    options.limits.read_bytes_per_s = static_cast<double>(bytes_of("--nvme-rate", a.rates[0]));
    options.limits.write_bytes_per_s = static_cast<double>(bytes_of("--nvme-rate", a.rates[1]));
    if (options.limits.read_bytes_per_s <= 0 || options.limits.write_bytes_per_s <= 0) {
      throw Error(ErrorCode::kUsage,
                  "--nvme-rate: " + a.rates[0] + "," + a.rates[1] +
                      ": both rates must be above 0 (leave it out for no limit)");
    }
  }
  return options;
}

std::vector<io::BenchShape> shapes_of(const IoArguments& a) {
  std::vector<io::BenchShape> shapes;
  for (const uint32_t files : a.files) {
    for (const std::string& block : a.blocks) {
      for (const uint32_t depth : a.depths) {
        for (const std::string& mode : a.modes) {
          shapes.push_back({.mode = mode_of(mode),
                            .block_bytes = bytes_of("--block", block),
                            .depth = depth,
                            .files = files});
        }
      }
    }
  }
  return shapes;
}

}  // namespace strata::cli
