// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/units.h"

namespace strata::cli {
namespace {

using nlohmann::ordered_json;

std::string block_text(const io::BenchShape& shape) {
  const uint64_t bytes = shape.block_bytes;
  return bytes % (1 << 20) == 0 ? fmt::format("{} MiB", bytes >> 20)
                                : fmt::format("{} KiB", bytes >> 10);
}

double gb(double bytes) {
  return bytes / 1e9;
}
double gib(double bytes) {
  return bytes / (1u << 30);
}

std::string latency_text(const io::LatencySummary& latency) {
  if (latency.count == 0) return "-";
  return fmt::format("{:.2f}/{:.2f}/{:.2f}/{:.2f}", latency.p50_s * 1e3, latency.p99_s * 1e3,
                     latency.p999_s * 1e3, latency.max_s * 1e3);
}

ordered_json latency_json(const io::LatencySummary& latency) {
  return {{"count", latency.count},
          {"p50_s", latency.p50_s},
          {"p99_s", latency.p99_s},
          {"p999_s", latency.p999_s},
          {"max_s", latency.max_s}};
}

ordered_json shape_json(const io::BenchShape& shape) {
  return {{"mode", io::name_of(shape.mode)},
          {"block_bytes", shape.block_bytes},
          {"depth", shape.depth},
          {"files_per_directory", shape.files}};
}

ordered_json result_json(const io::BenchResult& result) {
  ordered_json fields = shape_json(result.shape);
  fields["backend"] = result.backend;
  fields["direct"] = result.direct;
  fields["verified"] = result.verified;
  fields["seconds"] = result.seconds;
  fields["bytes_read"] = result.bytes_read;
  fields["bytes_written"] = result.bytes_written;
  fields["read_bytes_per_s"] = result.read_bytes_per_s();
  fields["write_bytes_per_s"] = result.write_bytes_per_s();
  fields["cpu_s_per_gb"] = result.cpu_s_per_gb();
  fields["read_latency"] = latency_json(result.read);
  fields["write_latency"] = latency_json(result.write);
  fields["write_limit_reached"] = result.write_limit_reached;
  if (result.interrupted) fields["interrupted"] = true;
  for (const io::BenchFile& file : result.files) {
    fields["files"].push_back({{"name", file.name},
                               {"read_bytes_per_s", file.read_bytes_per_s},
                               {"write_bytes_per_s", file.write_bytes_per_s}});
  }
  for (const io::BenchSample& sample : result.samples) {
    fields["samples"].push_back({{"at_s", sample.at_s},
                                 {"read_bytes_per_s", sample.read_bytes_per_s},
                                 {"write_bytes_per_s", sample.write_bytes_per_s}});
  }
  return fields;
}

ordered_json interval_json(const io::Interval& interval) {
  return {{"median", interval.median},
          {"low", interval.low},
          {"high", interval.high},
          {"rounds", interval.count}};
}

}  // namespace

std::string io_table(const std::vector<io::BenchResult>& results) {
  std::string text = fmt::format("{:<9}{:>8}{:>6}{:>6}{:>9}{:>9}{:>9}{:>9}{:>9}  {:<29}{:<29}\n",
                                 "mode", "block", "depth", "files", "read", "write", "total",
                                 "total", "CPU", "read latency ms", "write latency ms");
  text += fmt::format("{:<9}{:>8}{:>6}{:>6}{:>9}{:>9}{:>9}{:>9}{:>9}  {:<29}{:<29}\n", "", "", "",
                      "/dir", "GB/s", "GB/s", "GB/s", "GiB/s", "s/GB", "p50/p99/p99.9/max",
                      "p50/p99/p99.9/max");
  for (const io::BenchResult& result : results) {
    text += fmt::format(
        "{:<9}{:>8}{:>6}{:>6}{:>9.3f}{:>9.3f}{:>9.3f}{:>9.3f}{:>9.3f}  {:<29}{:<29}{}\n",
        io::name_of(result.shape.mode), block_text(result.shape), result.shape.depth,
        result.shape.files, gb(result.read_bytes_per_s()), gb(result.write_bytes_per_s()),
        gb(result.bytes_per_s()), gib(result.bytes_per_s()), result.cpu_s_per_gb(),
        latency_text(result.read), latency_text(result.write),
        result.interrupted           ? " (interrupted)"
        : result.empty()             ? " (not measured: --write-limit)"
        : result.write_limit_reached ? " (ended by --write-limit)"
                                     : "");
    if (result.files.size() > 1) {
      for (const io::BenchFile& file : result.files) {
        text += fmt::format("  {:<27}{:>9.3f}{:>9.3f}{:>9.3f}  {}\n", "", gb(file.read_bytes_per_s),
                            gb(file.write_bytes_per_s),
                            gb(file.read_bytes_per_s + file.write_bytes_per_s), file.name);
      }
    }
  }
  return text;
}

std::string io_rates_over_time(const io::BenchResult& result) {
  constexpr size_t kRows = 20;
  const auto& samples = result.samples;
  if (samples.size() < kRows) return "";
  const io::Cliff cliff = io::find_cliff(result);
  std::string text =
      fmt::format("{} {} over time:\n", io::name_of(result.shape.mode), block_text(result.shape));
  std::vector<std::pair<double, double>> rows;
  double best = 0;
  const size_t group = (samples.size() + kRows - 1) / kRows;
  for (size_t first = 0; first < samples.size(); first += group) {
    const size_t end = std::min(first + group, samples.size());
    double sum = 0;
    for (size_t i = first; i < end; ++i) {
      sum += samples[i].read_bytes_per_s + samples[i].write_bytes_per_s;
    }
    rows.emplace_back(samples[end - 1].at_s, sum / static_cast<double>(end - first));
    best = std::max(best, rows.back().second);
  }
  for (const auto& [at_s, rate] : rows) {
    const auto width = static_cast<size_t>(best > 0 ? 40 * rate / best : 0);
    text += fmt::format("  {:>7.1f} s {:>8.3f} GB/s {}\n", at_s, gb(rate), std::string(width, '#'));
  }
  if (cliff.found) {
    text += fmt::format(
        "  the last quarter of the time had {:.2f} of the best rate (a full write cache, or heat): "
        "plan with {:.3f} GB/s\n",
        cliff.tail_bytes_per_s / cliff.best_bytes_per_s, gb(cliff.tail_bytes_per_s));
  }
  return text;
}

namespace {

ordered_json fio_json(const io::FioComparison& comparison) {
  ordered_json entry = shape_json(comparison.shape);
  entry["verified"] = comparison.verified;
  entry["strata_bytes_per_s"] = comparison.strata_bytes_per_s;
  entry["fio_bytes_per_s"] = comparison.fio_bytes_per_s;
  entry["strata_cpu_s_per_gb"] = comparison.strata_cpu_s_per_gb;
  entry["fio_cpu_s_per_gb"] = comparison.fio_cpu_s_per_gb;
  entry["ratio"] = interval_json(comparison.ratio);
  entry["control"] = interval_json(comparison.control);
  return entry;
}

ordered_json checksum_json(const io::ChecksumComparison& comparison) {
  ordered_json entry = shape_json(comparison.shape);
  entry["with_bytes_per_s"] = comparison.with_bytes_per_s;
  entry["without_bytes_per_s"] = comparison.without_bytes_per_s;
  entry["with_cpu_s_per_gb"] = comparison.with_cpu_s_per_gb;
  entry["without_cpu_s_per_gb"] = comparison.without_cpu_s_per_gb;
  entry["cost_cpu_s_per_gb"] = interval_json(comparison.cost_cpu_s_per_gb);
  entry["ratio"] = interval_json(comparison.ratio);
  entry["control"] = interval_json(comparison.control);
  return entry;
}

std::string interval_text(const io::Interval& interval) {
  return fmt::format("{:.3f} [{:.3f}, {:.3f}]", interval.median, interval.low, interval.high);
}

}  // namespace

std::string io_text(const IoReport& report) {
  if (!report.fio.empty()) return fio_table(report.fio);
  if (!report.checksums.empty()) return checksum_table(report.checksums);
  constexpr double kLongS = 20;
  const std::string limit = io::RateLimiter(report.options.limits).describe();
  const auto measured = std::find_if(report.results.begin(), report.results.end(),
                                     [](const io::BenchResult& result) { return !result.empty(); });
  const std::string how = measured == report.results.end()
                              ? "nothing was measured"
                              : std::string(measured->backend) +
                                    (measured->direct ? ", O_DIRECT" : ", through the page cache");
  std::string text = fmt::format("{}, checksums {}{}, {} written in all\n", how,
                                 report.options.verify ? "on" : "off",
                                 limit.empty() ? "" : ", limited to " + limit,
                                 format_bytes(static_cast<int64_t>(report.bytes_written)));
  text += io_table(report.results);
  for (const io::BenchResult& result : report.results) {
    if (report.options.seconds >= kLongS) text += io_rates_over_time(result);
  }
  if (!report.profile_path.empty()) {
    text += "machine profile: " + report.profile_path + "\n";
  }
  if (report.advice) text += advice_text(*report.advice);
  if (report.baseline) text += report.baseline->table;
  return text;
}

std::string io_json(const IoReport& report) {
  ordered_json fields;
  fields["kind"] = "strata bench io";
  fields["directories"] = report.options.directories;
  if (!report.options.weights.empty()) fields["weights"] = report.options.weights;
  fields["scratch_bytes"] = report.options.bytes;
  fields["bytes_written"] = report.bytes_written;
  fields["rate_limit"] = io::RateLimiter(report.options.limits).describe();
  fields["results"] = ordered_json::array();
  for (const io::BenchResult& result : report.results)
    fields["results"].push_back(result_json(result));
  if (report.idle) fields["idle"] = result_json(*report.idle);
  for (const auto& comparison : report.fio) fields["compare_fio"].push_back(fio_json(comparison));
  for (const auto& comparison : report.checksums) {
    fields["compare_checksums"].push_back(checksum_json(comparison));
  }
  if (report.machine) fields["machine"] = ordered_json::parse(config::to_json(*report.machine));
  if (!report.profile_path.empty()) fields["machine_profile"] = report.profile_path;
  if (report.advice) fields["for"] = ordered_json::parse(advice_json(*report.advice));
  if (report.baseline) {
    fields["baseline"] = {{"shapes_compared", report.baseline->compared},
                          {"shapes_slower", report.baseline->slower},
                          {"shapes_missing", report.baseline->missing}};
  }
  return fields.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

namespace {

std::string quoted(const std::string& text) {
  std::string csv = "\"";
  for (const char c : text) csv += c == '"' ? "\"\"" : std::string(1, c);
  return csv + "\"";
}

}  // namespace

// Writes a row for each shape, whose file is "all", followed by a row for each of its files, in
// which values for all files together are empty. A row says when its measurement ended early.
std::string io_csv(const IoReport& report) {
  std::string text =
      "mode,block_bytes,depth,files_per_directory,backend,verified,seconds,read_bytes_per_s,"
      "write_bytes_per_s,cpu_s_per_gb,read_p50_s,read_p99_s,read_p999_s,read_max_s,write_p50_s,"
      "write_p99_s,write_p999_s,write_max_s,bytes_read,bytes_written,direct,write_limit_reached,"
      "interrupted,limit_read_bytes_per_s,limit_write_bytes_per_s,file\n";
  const io::RateLimits& limits = report.options.limits;  // 0: no limit
  const std::string limited =
      fmt::format("{:.6g},{:.6g},", limits.read_bytes_per_s, limits.write_bytes_per_s);
  for (const io::BenchResult& r : report.results) {
    const std::string shape =
        fmt::format("{},{},{},{},{},{},{:.6g},", io::name_of(r.shape.mode), r.shape.block_bytes,
                    r.shape.depth, r.shape.files, r.backend, r.verified, r.seconds);
    const std::string state =
        fmt::format("{},{},{},", r.direct, r.write_limit_reached, r.interrupted) + limited;
    text += shape + fmt::format(
                        "{:.6g},{:.6g},{:.4g},{:.4g},{:.4g},{:.4g},{:.4g},{:.4g},{:.4g},{:.4g},"
                        "{:.4g},{},{},{}all\n",
                        r.read_bytes_per_s(), r.write_bytes_per_s(), r.cpu_s_per_gb(), r.read.p50_s,
                        r.read.p99_s, r.read.p999_s, r.read.max_s, r.write.p50_s, r.write.p99_s,
                        r.write.p999_s, r.write.max_s, r.bytes_read, r.bytes_written, state);
    for (const io::BenchFile& file : r.files) {
      text += shape + fmt::format("{:.6g},{:.6g},,,,,,,,,,,,{}{}\n", file.read_bytes_per_s,
                                  file.write_bytes_per_s, state, quoted(file.name));
    }
  }
  return text;
}

std::string fio_table(const std::vector<io::FioComparison>& comparisons) {
  std::string text =
      "| mode | block | depth | files | checksums | strata GB/s | fio GB/s | strata/fio [95 %] | "
      "fio/fio [95 %] | "
      "strata CPU s/GB | fio CPU s/GB | rounds |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const io::FioComparison& c : comparisons) {
    text += fmt::format(
        "| {} | {} | {} | {} | {} | {:.3f} | {:.3f} | {} | {} | {:.3f} | {:.3f} | {} |\n",
        io::name_of(c.shape.mode), block_text(c.shape), c.shape.depth, c.shape.files,
        c.verified ? "on" : "off", gb(c.strata_bytes_per_s), gb(c.fio_bytes_per_s),
        interval_text(c.ratio), interval_text(c.control), c.strata_cpu_s_per_gb, c.fio_cpu_s_per_gb,
        c.ratio.count);
  }
  return text;
}

std::string checksum_table(const std::vector<io::ChecksumComparison>& comparisons) {
  std::string text =
      "| mode | block | depth | files | with GB/s | without GB/s | with/without [95 %] | "
      "without/without [95 %] | with CPU s/GB | without CPU s/GB | cost CPU s/GB [95 %] | rounds "
      "|\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const io::ChecksumComparison& c : comparisons) {
    text += fmt::format(
        "| {} | {} | {} | {} | {:.3f} | {:.3f} | {} | {} | {:.3f} | {:.3f} | {} | {} |\n",
        io::name_of(c.shape.mode), block_text(c.shape), c.shape.depth, c.shape.files,
        gb(c.with_bytes_per_s), gb(c.without_bytes_per_s), interval_text(c.ratio),
        interval_text(c.control), c.with_cpu_s_per_gb, c.without_cpu_s_per_gb,
        interval_text(c.cost_cpu_s_per_gb), c.ratio.count);
  }
  return text;
}

}  // namespace strata::cli
