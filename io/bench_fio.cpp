// SPDX-License-Identifier: Apache-2.0
#include "io/bench_fio.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/base/check.h"
#include "engine/base/units.h"

namespace strata::io {
namespace {

constexpr const char* kFileName = "strata-bench-fio";
// A drive that fills its scratch more slowly than this counts as hanging.
constexpr double kSlowestBytesPerS = 20e6;
constexpr double kStartS = 5;  // fio's own start on a busy machine

// The path by which another process of this user can open a file without a name.
std::string path_of(const ScratchFile& file) {
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file.fd);
}

// How many bytes a job may move in both directions so that it writes at most
// `write_allowance_bytes`, because fio limits only the sum. A mixed job decides at random for each
// block whether to write it; a margin of eight standard deviations lets one job in 10^15 write
// more.
uint64_t most_bytes_moved(const BenchShape& shape, uint64_t write_allowance_bytes) {
  constexpr uint64_t kPlenty = uint64_t{1} << 50;
  const uint64_t blocks = std::min(write_allowance_bytes, kPlenty) / shape.block_bytes;
  if (shape.mode == BenchMode::kWrite) return blocks * shape.block_bytes;
  // n blocks in all: n/2 + 8 sqrt(n)/2 <= blocks.
  const double root = std::sqrt(16 + 2 * static_cast<double>(blocks)) - 4;
  return static_cast<uint64_t>(root * root) * shape.block_bytes;
}

}  // namespace

FioBench::FioBench(const BenchOptions& options, uint32_t files_per_directory)
    : options_(options), files_per_directory_(files_per_directory) {
  const double limit_s = kStartS + options.deadline_s;
  const FioOutput version = run_fio({"--version"}, limit_s, options.stop);
  if (version.timed_out) {
    throw Error(ErrorCode::kDeadline, fmt::format("compare with fio: fio --version: had not ended "
                                                  "after {:.0f} s (is the machine overloaded?)",
                                                  limit_s));
  }
  if (version.status != 0) {
    throw Error(ErrorCode::kConfig, "compare with fio: fio: not found (install the package fio)");
  }
  for (const std::string& directory : options.directories) {
    locks_.push_back(std::make_unique<DirectoryLock>(directory, std::string(kFileName) + ".lock",
                                                     "strata bench io --compare-fio"));
  }
}

FioBench::~FioBench() {
  close_files();
}

void FioBench::close_files() {
  for (const ScratchFile& file : files_) close(file.fd);
  files_.clear();
}

uint64_t FioBench::file_bytes() const {
  const auto count = static_cast<int64_t>(locks_.size() * files_per_directory_);
  return static_cast<uint64_t>(
      round_up(ceil_div(static_cast<int64_t>(options_.bytes), count), kMiB));
}

// Creates the files in the order of a volume's: round all directories.
void FioBench::create_files() {
  const uint64_t count = locks_.size() * files_per_directory_;
  for (uint64_t file = 0; file < count; ++file) {
    files_.push_back(create_scratch(*locks_[file % locks_.size()],
                                    {.bytes = file_bytes(),
                                     .index = static_cast<uint32_t>(file / locks_.size()),
                                     .count = files_per_directory_,
                                     .direct = false,
                                     .reserved = false,
                                     .leftover_name = std::string(kFileName) + ".scratch"}));
  }
}

// Writes every block once before anything is timed, as our own benchmark does.
void FioBench::lay_out() {
  if (laid_out_) return;
  for (const auto& lock : locks_) {
    const uint64_t need = file_bytes() * files_per_directory_;
    const uint64_t free = free_space(*lock).bytes;
    if (free >= need) continue;
    throw Error(ErrorCode::kDoesNotFit, "compare with fio: " + lock->directory() + ": needs " +
                                            format_bytes(static_cast<int64_t>(need)) +
                                            " beside our own scratch, free " +
                                            format_bytes(static_cast<int64_t>(free)) +
                                            " (free space there, or shrink the "
                                            "scratch)");
  }
  close_files();  // left by an interrupted layout
  create_files();
  run_job({.arguments = {"--rw=write", "--bs=1m", "--iodepth=8"},
           .seconds = static_cast<double>(layout_bytes()) / kSlowestBytesPerS,
           .most_bytes_written = layout_bytes()});
  laid_out_ = true;
}

uint64_t FioBench::layout_bytes() const {
  if (laid_out_) return 0;
  return file_bytes() * locks_.size() * files_per_directory_;
}

FioResult FioBench::run_job(const Job& job) {
  std::string names;
  for (const ScratchFile& file : files_) names += (names.empty() ? "" : ":") + path_of(file);
  std::vector<std::string> arguments = {"--name=strata-bench",
                                        "--filename=" + names,
                                        "--size=" + std::to_string(file_bytes() * files_.size()),
                                        "--ioengine=io_uring",
                                        "--direct=1",
                                        "--registerfiles=1",
                                        "--fixedbufs=1",
                                        "--file_service_type=roundrobin",
                                        "--scramble_buffers=0",  // as in our benchmark
                                        "--output-format=terse",
                                        "--terse-version=3"};
  arguments.insert(arguments.end(), job.arguments.begin(), job.arguments.end());
  const FioOutput output =
      run_fio(arguments, kStartS + job.seconds + options_.deadline_s, options_.stop);
  const std::optional<FioResult> result = parse_fio_terse(output.text);
  bytes_written_ += result ? result->bytes_written : job.most_bytes_written;
  if (options_.stop != nullptr && *options_.stop) {
    throw Error(ErrorCode::kInterrupted, "compare with fio: interrupted");
  }
  if (output.timed_out) {
    throw Error(
        ErrorCode::kDeadline,
        fmt::format("compare with fio: {}: fio had not ended {:.0f} s after its time and was "
                    "killed (the drive hangs: see dmesg)",
                    files_[0].name, options_.deadline_s));
  }
  if (output.status != 0 || !result) {
    throw Error(ErrorCode::kIo, "compare with fio: " + files_[0].name +
                                    ": fio failed: " + fio_words(output.text) +
                                    " (see dmesg, or run without --compare-fio)");
  }
  return *result;
}

FioResult FioBench::measure(const BenchShape& shape, uint64_t write_allowance_bytes) {
  const FioResult nothing = {.limit_reached = true};
  if (write_allowance_bytes < layout_bytes()) return nothing;
  write_allowance_bytes -= layout_bytes();
  const bool writes = shape.mode != BenchMode::kRead;
  const uint64_t moved_bytes = writes ? most_bytes_moved(shape, write_allowance_bytes) : 0;
  if (writes && moved_bytes == 0) return nothing;
  lay_out();
  const char* pattern = !writes ? "read" : shape.mode == BenchMode::kWrite ? "write" : "rw";
  Job job = {.arguments = {"--rw=" + std::string(pattern), "--rwmixread=50", "--randrepeat=0",
                           "--bs=" + std::to_string(shape.block_bytes),
                           "--iodepth=" + std::to_string(shape.depth),
                           "--runtime=" +
                               std::to_string(static_cast<int64_t>(options_.seconds * 1e6)) + "us"},
             .seconds = options_.seconds,
             .most_bytes_written = writes ? write_allowance_bytes : 0};
  // With time_based, fio would go on after io_size bytes. Without it, fio goes round its files
  // until then, and its queue runs empty once a round. With randrepeat, a mixed job would repeat
  // the same random choices in each round.
  job.arguments.push_back(writes ? "--io_size=" + std::to_string(moved_bytes) : "--time_based");
  FioResult result = run_job(job);
  result.limit_reached =
      writes && result.bytes_read + result.bytes_written + shape.block_bytes > moved_bytes;
  return result;
}

// Compares our run with the fio run next to it, and that fio run with the other one.
FioComparison comparison_of(const BenchShape& shape, const std::vector<FioRound>& rounds) {
  std::vector<double> ours, theirs, our_cpu, their_cpu, ratios, controls;
  for (const FioRound& round : rounds) {
    ours.push_back(round.strata);
    theirs.push_back(round.fio);
    our_cpu.push_back(round.strata_cpu);
    their_cpu.push_back(round.fio_cpu);
    ratios.push_back(round.strata / round.fio);
    controls.push_back(round.another_fio / round.fio);
  }
  return {.shape = shape,
          .strata_bytes_per_s = median_of(ours),
          .fio_bytes_per_s = median_of(theirs),
          .strata_cpu_s_per_gb = median_of(our_cpu),
          .fio_cpu_s_per_gb = median_of(their_cpu),
          .ratio = bootstrap_median(ratios),
          .control = bootstrap_median(controls)};
}

FioVerdict verdict_of(const FioComparison& comparison) {
  if (comparison.ratio.count < kFioLeastRounds) return FioVerdict::kNone;
  return comparison.ratio.high < kFioParity ? FioVerdict::kSlower : FioVerdict::kAsFast;
}

FioComparison compare_with_fio(IoBench& bench, FioBench& fio, const BenchShape& shape,
                               const BenchOptions& options, uint32_t rounds) {
  STRATA_CHECK(rounds > 0);
  std::vector<FioRound> done;
  const auto stopped = [&] { return options.stop != nullptr && *options.stop; };
  const auto measure_fio = [&]() -> std::optional<FioResult> {
    if (stopped()) return std::nullopt;
    const uint64_t before = fio.bytes_written();
    std::optional<FioResult> result;
    try {
      result = fio.measure(shape, bench.write_allowance());
    } catch (const Error& error) {
      bench.charge(fio.bytes_written() - before);
      if (error.code() == ErrorCode::kInterrupted) return std::nullopt;
      throw;
    }
    bench.charge(fio.bytes_written() - before);
    if (result->limit_reached) return std::nullopt;
    return result;
  };
  for (uint32_t round = 0; round < rounds; ++round) {
    // The order alternates, so that a drift of the machine favours neither.
    const bool ours_first = round % 2 == 0;
    BenchResult mine;
    if (ours_first) mine = bench.measure(shape);
    const std::optional<FioResult> first = measure_fio();
    if (!ours_first && first) mine = bench.measure(shape);
    const std::optional<FioResult> second = measure_fio();
    if (mine.empty() || mine.write_limit_reached || mine.interrupted || !first || !second) break;
    done.push_back({.strata = mine.bytes_per_s(),
                    .fio = first->bytes_per_s(),
                    .another_fio = second->bytes_per_s(),
                    .strata_cpu = mine.cpu_s_per_gb(),
                    .fio_cpu = first->cpu_s_per_gb});
  }
  if (done.empty()) {
    if (stopped()) throw Error(ErrorCode::kInterrupted, "compare with fio: interrupted");
    throw Error(
        ErrorCode::kConfig,
        fmt::format("compare with fio: {} of {} KiB at depth {}: the limit on bytes written "
                    "of {} ends the first round (raise --write-limit)",
                    name_of(shape.mode), shape.block_bytes >> 10, shape.depth,
                    format_bytes(static_cast<int64_t>(options.write_limit_bytes))));
  }
  FioComparison comparison = comparison_of(shape, done);
  comparison.verified = options.verify;
  return comparison;
}

}  // namespace strata::io
