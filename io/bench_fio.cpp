// SPDX-License-Identifier: Apache-2.0
#include "io/bench_fio.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "engine/base/check.h"
#include "engine/base/units.h"

namespace strata::io {
namespace {

constexpr const char* kFileName = "strata-bench-fio";

// Fields of terse version 3, counted from 0.
constexpr size_t kErrorField = 4;
constexpr size_t kReadKibField = 5;
constexpr size_t kReadRateField = 6;
constexpr size_t kReadMsField = 8;
constexpr size_t kWriteKibField = 46;
constexpr size_t kWriteRateField = 47;
constexpr size_t kWriteMsField = 49;
constexpr size_t kUserField = 87;
constexpr size_t kSystemField = 88;

// A file without a name, for another process of this user.
std::string path_of(const ScratchFile& file) {
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file.fd);
}

struct Output {
  int status = -1;
  std::string text;
};

// After fork(): its files are ours alone, and it ends when we do, however we end.
[[noreturn]] void become(char* const* argv, int out, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  execvp(argv[0], argv);
  _exit(127);
}

// Runs fio and takes all that it prints. It allocates in huge pages where the kernel has them, as
// BenchMemory does.
Output run_fio(const std::vector<std::string>& arguments, const std::atomic<bool>* stop) {
  std::vector<std::string> words = {"env", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1", "fio"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  Output output;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return output;
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) become(argv.data(), ends[1], parent);
  close(ends[1]);
  std::array<char, 4096> part;
  for (bool told = false; child > 0;) {
    if (!told && stop != nullptr && *stop) told = kill(child, SIGTERM) == 0;
    constexpr int kGlanceMs = 100;
    pollfd ready = {.fd = ends[0], .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, kGlanceMs) <= 0) continue;
    const ssize_t count = read(ends[0], part.data(), part.size());
    if (count == 0) break;
    if (count > 0) output.text.append(part.data(), static_cast<size_t>(count));
  }
  close(ends[0]);
  while (child > 0 && waitpid(child, &output.status, 0) < 0 && errno == EINTR) {
  }
  return output;
}

}  // namespace

std::optional<FioResult> parse_fio_terse(std::string_view output) {
  while (!output.empty() && output.back() == '\n') output.remove_suffix(1);
  const size_t line_start = output.rfind('\n');
  const std::string line(line_start == std::string_view::npos ? output
                                                              : output.substr(line_start + 1));
  std::vector<std::string> fields;
  for (size_t at = 0; at <= line.size();) {
    const size_t end = std::min(line.find(';', at), line.size());
    fields.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  if (fields.size() <= kSystemField || fields[0] != "3" || fields[kErrorField] != "0")
    return std::nullopt;
  const auto number = [&fields](size_t field) {
    return std::strtod(fields[field].c_str(), nullptr);
  };
  FioResult result;
  result.read_bytes_per_s = number(kReadRateField) * 1024;
  result.write_bytes_per_s = number(kWriteRateField) * 1024;
  result.bytes_written = static_cast<uint64_t>(number(kWriteKibField)) * 1024;
  const double gigabytes = (number(kReadKibField) + number(kWriteKibField)) * 1024 / 1e9;
  const double seconds = std::max(number(kReadMsField), number(kWriteMsField)) / 1e3;
  if (gigabytes <= 0 || seconds <= 0) return std::nullopt;
  result.cpu_s_per_gb = (number(kUserField) + number(kSystemField)) / 100 * seconds / gigabytes;
  return result;
}

FioBench::FioBench(const BenchOptions& options, uint32_t files_per_directory)
    : options_(options), files_per_directory_(files_per_directory) {
  if (run_fio({"--version"}, nullptr).status != 0) {
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

// One after the other in each directory, as a volume has them.
void FioBench::create_files() {
  const uint64_t count = locks_.size() * files_per_directory_;
  for (uint64_t file = 0; file < count; ++file) {
    files_.push_back(create_scratch(*locks_[file % locks_.size()],
                                    {.bytes = static_cast<uint64_t>(round_up(
                                         static_cast<int64_t>(options_.bytes / count), kPageBytes)),
                                     .index = static_cast<uint32_t>(file / locks_.size()),
                                     .count = files_per_directory_,
                                     .direct = false,
                                     .reserved = false,
                                     .leftover_name = std::string(kFileName) + ".scratch"}));
  }
}

// Every block is written once before anything is timed, as ours are.
void FioBench::lay_out() {
  if (laid_out_) return;
  for (const auto& lock : locks_) {
    const uint64_t need = options_.bytes / locks_.size();
    const uint64_t free = free_space(*lock).bytes;
    if (free >= need) continue;
    throw Error(ErrorCode::kDoesNotFit, "compare with fio: " + lock->directory() + ": needs " +
                                            format_bytes(static_cast<int64_t>(need)) +
                                            " beside our own scratch, free " +
                                            format_bytes(static_cast<int64_t>(free)) +
                                            " (free space there, or shrink the "
                                            "scratch)");
  }
  close_files();  // of a layout that was interrupted
  create_files();
  run_job({"--rw=write", "--bs=1m", "--iodepth=8"});
  laid_out_ = true;
}

FioResult FioBench::run_job(const std::vector<std::string>& job) {
  std::string names;
  for (const ScratchFile& file : files_) names += (names.empty() ? "" : ":") + path_of(file);
  std::vector<std::string> arguments = {"--name=strata-bench",
                                        "--filename=" + names,
                                        "--size=" + std::to_string(options_.bytes),
                                        "--ioengine=io_uring",
                                        "--direct=1",
                                        "--registerfiles=1",
                                        "--fixedbufs=1",
                                        "--file_service_type=roundrobin",
                                        "--output-format=terse",
                                        "--terse-version=3"};
  arguments.insert(arguments.end(), job.begin(), job.end());
  const Output output = run_fio(arguments, options_.stop);
  if (options_.stop != nullptr && *options_.stop) {
    throw Error(ErrorCode::kInterrupted, "compare with fio: interrupted");
  }
  const std::optional<FioResult> result = parse_fio_terse(output.text);
  if (output.status != 0 || !result) {
    throw Error(ErrorCode::kIo, "compare with fio: " + files_[0].name + ": " + output.text);
  }
  bytes_written_ += result->bytes_written;
  return *result;
}

FioResult FioBench::measure(const BenchShape& shape) {
  STRATA_CHECK(shape.mode != BenchMode::kTraining);
  lay_out();
  const char* pattern = shape.mode == BenchMode::kRead    ? "read"
                        : shape.mode == BenchMode::kWrite ? "write"
                                                          : "rw";
  return run_job(
      {"--rw=" + std::string(pattern), "--rwmixread=50",
       "--bs=" + std::to_string(shape.block_bytes), "--iodepth=" + std::to_string(shape.depth),
       "--time_based",
       "--runtime=" + std::to_string(static_cast<int64_t>(options_.seconds * 1e6)) + "us"});
}

FioComparison compare_with_fio(IoBench& bench, FioBench& fio, const BenchShape& shape,
                               const BenchOptions& options, uint32_t rounds) {
  STRATA_CHECK(rounds > 0);
  std::vector<double> ours, theirs, our_cpu, their_cpu, ratios, controls;
  const auto stopped = [&] { return options.stop != nullptr && *options.stop; };
  // fio has no limit of its own: it runs where a quarter more than the last rate still fits.
  double write_bytes_per_s = 0;
  const auto measure_fio = [&]() -> std::optional<FioResult> {
    const double expected = 1.25 * write_bytes_per_s * options.seconds;
    if (stopped() || expected + static_cast<double>(fio.layout_bytes()) >
                         static_cast<double>(bench.write_allowance())) {
      return std::nullopt;
    }
    const uint64_t before = fio.bytes_written();
    FioResult result;
    try {
      result = fio.measure(shape);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInterrupted) return std::nullopt;
      throw;
    }
    bench.charge(fio.bytes_written() - before);
    write_bytes_per_s = std::max(write_bytes_per_s, result.write_bytes_per_s);
    return result;
  };
  for (uint32_t round = 0; round < rounds; ++round) {
    // Ours first and fio first, by turns: a drift of the machine favours neither.
    const bool ours_first = round % 2 == 0;
    BenchResult mine;
    if (ours_first) mine = bench.measure(shape);
    write_bytes_per_s = std::max(write_bytes_per_s, mine.write_bytes_per_s());
    const std::optional<FioResult> first = measure_fio();
    if (!ours_first && first) mine = bench.measure(shape);
    const std::optional<FioResult> second = measure_fio();
    if (mine.empty() || mine.write_limit_reached || mine.interrupted || !first || !second) break;
    // Ours is compared with the fio run next to it, and that one with the other fio run.
    ours.push_back(mine.bytes_per_s());
    theirs.push_back(first->bytes_per_s());
    our_cpu.push_back(mine.cpu_s_per_gb());
    their_cpu.push_back(first->cpu_s_per_gb);
    ratios.push_back(mine.bytes_per_s() / first->bytes_per_s());
    controls.push_back(second->bytes_per_s() / first->bytes_per_s());
  }
  if (ratios.empty()) {
    if (stopped()) throw Error(ErrorCode::kInterrupted, "compare with fio: interrupted");
    throw Error(ErrorCode::kConfig,
                "compare with fio: the limit on bytes written left no whole round (raise it)");
  }
  return {.shape = shape,
          .verified = options.verify,
          .strata_bytes_per_s = median_of(ours),
          .fio_bytes_per_s = median_of(theirs),
          .strata_cpu_s_per_gb = median_of(our_cpu),
          .fio_cpu_s_per_gb = median_of(their_cpu),
          .ratio = bootstrap_median(ratios),
          .control = bootstrap_median(controls)};
}

}  // namespace strata::io
