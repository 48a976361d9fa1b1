// SPDX-License-Identifier: Apache-2.0
#include "io/bench_fio.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "engine/base/check.h"
#include "engine/base/rng.h"

namespace strata::io {
namespace {

constexpr int kResamples = 10000;

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

double median(std::vector<double> values) {
  STRATA_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

struct Output {
  int status = -1;
  std::string text;
};

Output run(const std::string& command) {
  Output output;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return output;
  std::array<char, 4096> part;
  while (const size_t count = fread(part.data(), 1, part.size(), pipe))
    output.text.append(part.data(), count);
  output.status = pclose(pipe);
  return output;
}

std::string quote(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
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

FioBench::FioBench(const BenchOptions& options, uint32_t files_per_directory) : options_(options) {
  if (run("fio --version 2>/dev/null").status != 0) {
    throw Error(ErrorCode::kConfig, "compare with fio: fio: not found (install the package fio)");
  }
  for (const std::string& directory : options.directories) {
    if (directory.find(':') != std::string::npos) {
      throw Error(ErrorCode::kConfig,
                  "compare with fio: " + directory + ": fio reads ':' as a separator");
    }
    for (uint32_t file = 0; file < files_per_directory; ++file) {
      paths_.push_back(directory + "/strata-bench-fio." + std::to_string(getpid()) + "." +
                       std::to_string(file));
    }
  }
}

FioBench::~FioBench() {
  for (const std::string& path : paths_) unlink(path.c_str());
}

FioResult FioBench::run_job(const std::string& job) {
  std::string names;
  for (const std::string& path : paths_) names += (names.empty() ? "" : ":") + path;
  const Output output =
      run("fio --name=strata-bench --filename=" + quote(names) +
          " --size=" + std::to_string(options_.bytes) +
          " --ioengine=io_uring --direct=1 --registerfiles=1 --fixedbufs=1"
          " --file_service_type=roundrobin --output-format=terse --terse-version=3 " +
          job + " 2>&1");
  const std::optional<FioResult> result = parse_fio_terse(output.text);
  if (output.status != 0 || !result) {
    throw Error(ErrorCode::kIo, "compare with fio: " + paths_[0] + ": " + output.text);
  }
  bytes_written_ += result->bytes_written;
  return *result;
}

FioResult FioBench::measure(const BenchShape& shape) {
  STRATA_CHECK(shape.mode != BenchMode::kTraining);
  // Every block is written once before anything is timed, as ours are.
  if (!laid_out_) run_job("--rw=write --bs=1m --iodepth=8");
  laid_out_ = true;
  const char* pattern = shape.mode == BenchMode::kRead    ? "read"
                        : shape.mode == BenchMode::kWrite ? "write"
                                                          : "rw --rwmixread=50";
  return run_job("--rw=" + std::string(pattern) + " --bs=" + std::to_string(shape.block_bytes) +
                 " --iodepth=" + std::to_string(shape.depth) + " --time_based --runtime=" +
                 std::to_string(static_cast<int64_t>(options_.seconds * 1e6)) + "us");
}

RatioInterval bootstrap_ratio(std::vector<double> ratios) {
  const Philox random(42);
  std::vector<double> medians;
  std::vector<double> sample(ratios.size());
  for (uint64_t i = 0; i < kResamples; ++i) {
    for (size_t k = 0; k < sample.size(); ++k) sample[k] = ratios[random.u64(i, k) % ratios.size()];
    medians.push_back(median(sample));
  }
  std::sort(medians.begin(), medians.end());
  return {.median = median(ratios),
          .low = medians[kResamples * 25 / 1000],
          .high = medians[kResamples * 975 / 1000],
          .count = ratios.size()};
}

FioComparison compare_with_fio(IoBench& bench, FioBench& fio, const BenchShape& shape,
                               uint32_t rounds, uint64_t write_limit_bytes) {
  STRATA_CHECK(rounds > 0);
  FioComparison comparison;
  comparison.shape = shape;
  std::vector<double> ours, theirs, our_cpu, their_cpu, ratios, controls;
  for (uint32_t round = 0; round < rounds; ++round) {
    if (round > 0 && bench.bytes_written() + fio.bytes_written() > write_limit_bytes) break;
    // Ours first and fio first, by turns: a drift of the machine favours neither.
    const bool ours_first = round % 2 == 0;
    BenchResult mine;
    if (ours_first) mine = bench.measure(shape);
    const FioResult first = fio.measure(shape);
    if (!ours_first) mine = bench.measure(shape);
    const FioResult second = fio.measure(shape);
    // Ours is compared with the fio run next to it, and that one with the other fio run.
    comparison.verified = mine.verified;
    ours.push_back(mine.bytes_per_s());
    theirs.push_back(first.bytes_per_s());
    our_cpu.push_back(mine.cpu_s_per_gb());
    their_cpu.push_back(first.cpu_s_per_gb);
    ratios.push_back(mine.bytes_per_s() / first.bytes_per_s());
    controls.push_back(second.bytes_per_s() / first.bytes_per_s());
  }
  comparison.strata_bytes_per_s = median(ours);
  comparison.fio_bytes_per_s = median(theirs);
  comparison.strata_cpu_s_per_gb = median(our_cpu);
  comparison.fio_cpu_s_per_gb = median(their_cpu);
  comparison.ratio = bootstrap_ratio(ratios);
  comparison.control = bootstrap_ratio(controls);
  return comparison;
}

}  // namespace strata::io
