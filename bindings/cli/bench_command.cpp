// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/bench_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "bindings/cli/bench_report.h"
#include "engine/base/units.h"
#include "io/bench_fio.h"
#include "io/bench_io.h"

namespace strata::cli {
namespace {

struct IoArguments {
  std::vector<std::string> directories;
  std::string size = "2GiB";
  std::vector<std::string> blocks = {"1MiB"};
  std::vector<uint32_t> depths = {16};
  std::vector<uint32_t> files = {1};
  std::vector<std::string> modes = {"read", "write", "mixed", "training"};
  double seconds = 5;
  std::string write_limit = "64GiB";
  std::string backend = "auto";
  std::vector<std::string> rates;
  bool no_checksums = false;
  bool json = false;
  bool csv = false;
  bool compare_fio = false;
  uint32_t rounds = 21;
  std::string baseline;
  double tolerance = 0.1;
};

uint64_t bytes_of(const std::string& flag, const std::string& text) {
  const std::optional<int64_t> bytes = parse_bytes(text);
  if (!bytes)
    throw Error(ErrorCode::kUsage, flag + ": " + text + ": not a size (write 4MiB, 64GiB)");
  return static_cast<uint64_t>(*bytes);
}

void declare(CLI::App& io, IoArguments& a) {
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
  io.add_flag("--no-checksums", a.no_checksums, "The raw path, without verifying what is read");
  io.add_flag("--json", a.json, "Print the results as JSON");
  io.add_flag("--csv", a.csv, "Print the results as CSV");
  io.add_flag("--compare-fio", a.compare_fio, "Measure fio with the same shapes, turn by turn");
  io.add_option("--rounds", a.rounds, "Of --compare-fio")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  io.add_option("--baseline", a.baseline,
                "JSON of an earlier run: exit code 1 when a shape is slower");
  io.add_option("--tolerance", a.tolerance, "How much slower than the baseline is still good")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
}

io::BenchMode mode_of(const std::string& name) {
  for (const io::BenchMode mode : {io::BenchMode::kRead, io::BenchMode::kWrite,
                                   io::BenchMode::kMixed, io::BenchMode::kTraining}) {
    if (name == io::name_of(mode)) return mode;
  }
  throw Error(ErrorCode::kUsage, "--mode: " + name + ": none of read, write, mixed, training");
}

io::BenchOptions options_of(const IoArguments& a) {
  io::BenchOptions options;
  options.directories = a.directories;
  options.bytes = bytes_of("--size", a.size);
  options.seconds = a.seconds;
  options.sample_s = std::max(a.seconds / 100, 0.25);
  options.write_limit_bytes = bytes_of("--write-limit", a.write_limit);
  options.verify = !a.no_checksums;
  options.backend = a.backend == "io_uring"  ? io::Backend::kUring
                    : a.backend == "threads" ? io::Backend::kThreads
                                             : io::Backend::kAuto;
  if (!a.rates.empty()) {
    options.limits.read_bytes_per_s = static_cast<double>(bytes_of("--nvme-rate", a.rates[0]));
    options.limits.write_bytes_per_s = static_cast<double>(bytes_of("--nvme-rate", a.rates[1]));
  }
  return options;
}

// Shapes with the same volume follow each other, so that it is filled once.
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

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw Error(ErrorCode::kConfig, "read baseline: " + path + ": cannot be read");
  return text.str();
}

void progress(const io::BenchShape& shape) {
  std::fprintf(stderr, "%s %s depth %u files %u\n", io::name_of(shape.mode),
               format_bytes(static_cast<int64_t>(shape.block_bytes)).c_str(), shape.depth,
               shape.files);
}

int compare_fio(const IoArguments& a, const io::BenchOptions& options) {
  io::IoBench bench(options);
  std::vector<io::FioComparison> comparisons;
  std::optional<io::FioBench> fio;
  uint32_t files = 0;
  for (const io::BenchShape& shape : shapes_of(a)) {
    if (shape.mode == io::BenchMode::kTraining) continue;  // fio has no such pattern
    if (files != shape.files) fio.emplace(options, shape.files);
    files = shape.files;
    progress(shape);
    comparisons.push_back(
        io::compare_with_fio(bench, *fio, shape, a.rounds, options.write_limit_bytes));
  }
  const std::string text = a.json ? io_json(options, {}, comparisons) : fio_table(comparisons);
  std::fputs(text.c_str(), stdout);
  return 0;
}

int bench_io(const IoArguments& a) {
  const io::BenchOptions options = options_of(a);
  const std::vector<io::BenchShape> shapes = shapes_of(a);
  const std::string baseline = a.baseline.empty() ? "" : read_text(a.baseline);
  if (!baseline.empty()) (void)compare_with_baseline(baseline, {}, a.tolerance);  // refuse early
  if (a.compare_fio) return compare_fio(a, options);
  io::IoBench bench(options);
  std::vector<io::BenchResult> results;
  for (const io::BenchShape& shape : shapes) {
    progress(shape);
    results.push_back(bench.measure(shape));
  }
  if (a.json) {
    std::fputs(io_json(options, results, {}).c_str(), stdout);
  } else if (a.csv) {
    std::fputs(io_csv(results).c_str(), stdout);
  } else {
    const std::string limit = io::RateLimiter(options.limits).describe();
    std::printf("%s, %s, checksums %s%s, %s written in all\n", results[0].backend.c_str(),
                results[0].direct ? "O_DIRECT" : "through the page cache",
                options.verify ? "on" : "off",
                limit.empty() ? "" : (", limited to " + limit).c_str(),
                format_bytes(static_cast<int64_t>(bench.bytes_written())).c_str());
    std::fputs(io_table(results).c_str(), stdout);
    constexpr double kLongS = 20;
    for (const io::BenchResult& result : results) {
      if (options.seconds >= kLongS) std::fputs(io_rates_over_time(result).c_str(), stdout);
    }
  }
  if (baseline.empty()) return 0;
  const BaselineVerdict verdict = compare_with_baseline(baseline, results, a.tolerance);
  std::fputs(verdict.table.c_str(), a.json || a.csv ? stderr : stdout);
  if (verdict.compared == 0) {
    throw Error(ErrorCode::kConfig,
                "compare with baseline: " + a.baseline + ": has none of these shapes");
  }
  return verdict.slower > 0 ? 1 : 0;
}

}  // namespace

int bench_command(int argc, char** argv) {
  CLI::App app("Measures this machine", "strata bench");
  app.require_subcommand(1);
  CLI::App* io =
      app.add_subcommand("io", "Drives: rates, latencies and processor time of the I/O engine");
  IoArguments arguments;
  declare(*io, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return bench_io(arguments);
}

}  // namespace strata::cli
