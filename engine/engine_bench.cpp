// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "engine/config/options.h"
#include "engine/engine.h"
#include "engine/session/bench.h"

namespace strata {
namespace {

// Options that say what the program does with the measurements.
constexpr const char* kOfTheProgram[] = {
    "compare-fio", "compare-checksums", "baseline", "for", "profile", "json", "csv"};

config::Options parse(const std::string& text) {
  config::Options options = config::options_from_json(config::Command::kBench, text);
  for (const char* name : kOfTheProgram) {
    if (!options.is_given(name)) continue;
    throw Error(
        ErrorCode::kUsage,
        fmt::format("bench_io: {}: only the program `strata bench io` has it (leave it out)",
                    name));
  }
  session::check_bench(options);
  return options;
}

DriveLatency latency_of(const io::LatencySummary& summary) {
  return {summary.p50_s, summary.p99_s, summary.p999_s, summary.max_s};
}

DriveRates rates_of(const io::BenchResult& result) {
  return {.mode = io::name_of(result.shape.mode),
          .block_bytes = static_cast<int64_t>(result.shape.block_bytes),
          .depth = static_cast<int>(result.shape.depth),
          .files = static_cast<int>(result.shape.files),
          .seconds = result.seconds,
          .bytes_read = static_cast<int64_t>(result.bytes_read),
          .bytes_written = static_cast<int64_t>(result.bytes_written),
          .read_bytes_per_s = result.read_bytes_per_s(),
          .write_bytes_per_s = result.write_bytes_per_s(),
          .cpu_s_per_gb = result.cpu_s_per_gb(),
          .read = latency_of(result.read),
          .write = latency_of(result.write),
          .direct = result.direct,
          .verified = result.verified,
          .is_cut_short = result.write_limit_reached || result.interrupted};
}

}  // namespace

void bench_io(const std::string& text, Sinks sinks,
              const std::function<void(const DriveRates&)>& measured,
              const std::atomic<bool>* stop) {
  const config::Options options = parse(text);
  sinks.hang_after_s = static_cast<double>(options.io_deadline);
  Environment environment(std::move(sinks));
  const Environment::Scope scope(&environment);
  for (const std::string& warning : options.warnings) log(LogLevel::kWarning, warning);
  io::BenchOptions bench_options = session::bench_options(options);
  bench_options.stop = stop;
  const uint64_t written = session::set_weights(bench_options);
  io::IoBench bench(bench_options);
  bench.charge(written);
  for (const io::BenchShape& shape : session::shapes_of(options)) {
    if (bench.stopped()) return;
    measured(rates_of(bench.measure(shape)));
  }
}

}  // namespace strata
