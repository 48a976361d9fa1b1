// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/bench_writes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bindings/cli/bench_baseline.h"
#include "engine/base/units.h"
#include "io/drive_weights.h"

namespace strata::cli {
namespace {

// A round of a comparison has three measurements: the two, and one of them again as the control.
constexpr double kTurns = 3;

double written_share(io::BenchMode mode) {
  switch (mode) {
    case io::BenchMode::kRead:
      return 0;
    case io::BenchMode::kWrite:
      return 1;
    case io::BenchMode::kMixed:
      return 0.5;
  }
  return 0;
}

// A limit slightly above the expected bytes, as a user writes it.
std::string limit_for(double bytes) {
  constexpr double kRoom = 1.1;
  const double unit = bytes * kRoom < kGiB ? double(kMiB) : double(kGiB);
  return fmt::format("{:.0f}{}", std::ceil(bytes * kRoom / unit), unit == kMiB ? "MiB" : "GiB");
}

}  // namespace

double expected_write_bytes(const io::BenchOptions& options, const WriteQuestion& question) {
  const auto directories = static_cast<double>(options.directories.size());
  double rate = kAssumedWriteBytesPerS * directories;
  const double limit = options.limits.write_bytes_per_s;
  if (limit > 0) rate = std::min(rate, limit);
  const bool compares = question.rounds > 0;
  const double runs = compares ? kTurns * question.rounds : 1;
  double bytes = 0;
  if (!compares && io::may_differ(options.directories))
    bytes += directories * double(io::kWeightWriteBytes);
  const io::BenchShape* last = nullptr;
  for (const io::BenchShape& shape : question.shapes) {
    if (last == nullptr || !io::IoBench::same_volume(*last, shape)) bytes += double(options.bytes);
    const bool other_files = last == nullptr || last->files != shape.files;
    if (question.compares_fio && other_files) bytes += double(options.bytes);
    bytes += runs * options.seconds * rate * written_share(shape.mode);
    last = &shape;
  }
  return bytes;
}

std::string write_limit_warning(const io::BenchOptions& options, const WriteQuestion& question) {
  const double bytes = expected_write_bytes(options, question);
  if (bytes <= double(options.write_limit_bytes)) return "";
  const std::string lower = question.rounds > 0 ? "lower --rounds," : "lower";
  return fmt::format(
      "--write-limit: these measurements would write {} if each directory takes {:.0f} GB a "
      "second, "
      "and may write {}: the last ones will end early or not begin (give --write-limit {}, or {} "
      "--seconds or --size)\n",
      format_bytes(static_cast<int64_t>(bytes)), kAssumedWriteBytesPerS / 1e9,
      format_bytes(static_cast<int64_t>(options.write_limit_bytes)), limit_for(bytes), lower);
}

std::string ended_by_write_limit(const std::vector<io::BenchResult>& results) {
  std::string ended;
  std::string left_out;
  for (const io::BenchResult& result : results) {
    if (!result.write_limit_reached) continue;
    std::string& names = result.empty() ? left_out : ended;
    names += (names.empty() ? "" : ", ") + name_of(result.shape);
  }
  if (!ended.empty()) ended = "ended early: " + ended;
  if (!left_out.empty()) left_out = "not measured: " + left_out;
  return ended + (ended.empty() || left_out.empty() ? "" : "; ") + left_out;
}

}  // namespace strata::cli
