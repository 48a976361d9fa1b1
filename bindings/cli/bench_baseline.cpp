// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/bench_baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/advice.h"
#include "engine/base/error.h"
#include "engine/base/plural.h"
#include "engine/base/units.h"
#include "engine/config/config_file.h"

namespace strata::cli {
namespace {

using nlohmann::json;

Error refused(const std::string& path, const std::string& what) {
  return Error(ErrorCode::kConfig, "read baseline: " + path + ": " +
                                       with_advice(what, "write it with `strata bench io --json`"));
}

std::string shape_name(const std::string& mode, uint64_t block, uint64_t depth, uint64_t files) {
  return fmt::format("{} {} KiB x {} on {}", mode, block >> 10, depth,
                     counted(static_cast<int64_t>(files), "file"));
}

std::string read_text(const std::string& path) {
  constexpr size_t kBytesMax = 64 << 20;  // many shapes, with their rates over minutes
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) throw refused(path, "is a directory");
  std::string text;
  try {
    text = config::read_config_file(path, kBytesMax);
  } catch (const Error& error) {
    throw Error(error.code(), std::string("read baseline: ") + error.what());
  }
  if (text.empty()) throw refused(path, "is empty");
  return text;
}

double p99_s(const json& entry) {
  double longest_s = 0;
  for (const char* direction : {"read_latency", "write_latency"}) {
    const auto latency = entry.find(direction);
    if (latency != entry.end()) longest_s = std::max(longest_s, latency->value("p99_s", 0.0));
  }
  return longest_s;
}

Baseline parse(const std::string& path, const json& all) {
  Baseline baseline;
  baseline.path = path;
  baseline.rate_limit = all.value("rate_limit", "");
  if (all.contains("directories")) baseline.directories = all["directories"].size();
  baseline.scratch_bytes = all.value("scratch_bytes", uint64_t{0});
  for (const json& entry : all.at("results")) {
    if (entry.at("mode") == "training") continue;  // a pattern that older versions measured
    const double rate =
        entry.at("read_bytes_per_s").get<double>() + entry.at("write_bytes_per_s").get<double>();
    if (!std::isfinite(rate) || rate < 0) throw refused(path, "has a rate that is not a number");
    if (rate == 0) continue;  // was not measured
    baseline.rates.push_back(
        {.shape = shape_name(entry.at("mode"), entry.at("block_bytes"), entry.at("depth"),
                             entry.at("files_per_directory")),
         .bytes_per_s = rate,
         .p99_s = p99_s(entry),
         .seconds = entry.value("seconds", 0.0),
         .backend = entry.value("backend", ""),
         .verified = entry.value("verified", true)});
  }
  return baseline;
}

const Baseline::Rate* find(const Baseline& baseline, const std::string& shape) {
  const auto at = std::find_if(baseline.rates.begin(), baseline.rates.end(),
                               [&](const Baseline::Rate& rate) { return rate.shape == shape; });
  return at == baseline.rates.end() ? nullptr : &*at;
}

bool has(const std::vector<io::BenchShape>& shapes, const std::string& name) {
  return std::any_of(shapes.begin(), shapes.end(),
                     [&](const io::BenchShape& shape) { return name_of(shape) == name; });
}

// Reports each condition once that makes rates differ but is not a reason to refuse.
class Conditions {
 public:
  template <class T>
  void compare(const std::string& what, const T& then, const T& now) {
    const std::string line =
        fmt::format("  other conditions: {}: {} then, {} now\n", what, then, now);
    if (then != now && text_.find(line) == std::string::npos) text_ += line;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Whether two measurements have the same length, within a tenth. A longer one sees more of a full
// cache.
bool same_length(double then_s, double now_s) {
  return std::abs(then_s - now_s) <= 0.1 * std::max(then_s, now_s);
}

std::string differing_conditions(const Baseline& baseline, const io::BenchOptions& options,
                                 const std::vector<io::BenchResult>& results) {
  Conditions conditions;
  for (const io::BenchResult& result : results) {
    const Baseline::Rate* then = find(baseline, name_of(result.shape));
    if (then == nullptr || result.empty()) continue;
    if (!then->backend.empty() && !result.backend.empty()) {
      conditions.compare("backend", then->backend, result.backend);
    }
    const auto seconds = [](double value) { return fmt::format("{:.3g} s", value); };
    if (then->seconds > 0 && !same_length(then->seconds, result.seconds)) {
      conditions.compare(then->shape + " was measured for", seconds(then->seconds),
                         seconds(result.seconds));
    }
  }
  if (baseline.directories > 0) {
    conditions.compare("directories", baseline.directories, uint64_t{options.directories.size()});
  }
  if (baseline.scratch_bytes > 0) {
    conditions.compare("scratch", format_bytes(static_cast<int64_t>(baseline.scratch_bytes)),
                       format_bytes(static_cast<int64_t>(options.bytes)));
  }
  return conditions.text();
}

}  // namespace

std::string name_of(const io::BenchShape& shape) {
  return shape_name(io::name_of(shape.mode), shape.block_bytes, shape.depth, shape.files);
}

Baseline read_baseline(const std::string& path) {
  const std::string text = read_text(path);
  Baseline baseline;
  try {
    baseline = parse(path, json::parse(text));
  } catch (const json::exception& error) {
    throw refused(path, std::string("not a result of `strata bench io --json`: ") + error.what());
  }
  if (baseline.rates.empty()) throw refused(path, "has no measured shape");
  return baseline;
}

void check_comparable(const Baseline& baseline, const io::BenchOptions& options,
                      const BaselineQuestion& question) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::kConfig, "compare with baseline: " + baseline.path + ": " + what);
  };
  const std::string limit = io::RateLimiter(options.limits).describe();
  if (baseline.rate_limit != limit) {
    const auto text = [](const std::string& of) { return of.empty() ? "none" : of; };
    refuse("was measured with another rate limit: " + text(baseline.rate_limit) + " then, " +
           text(limit) + " now (give the same --nvme-rate)");
  }
  const std::string backend = options.backend == io::Backend::kUring     ? "io_uring"
                              : options.backend == io::Backend::kThreads ? "threads"
                                                                         : "";
  int found = 0;
  for (const io::BenchShape& shape : question.shapes) {
    const Baseline::Rate* then = find(baseline, name_of(shape));
    if (then == nullptr) continue;
    ++found;
    if (then->verified != options.verify) {
      refuse(then->shape + (then->verified
                                ? " was measured with checksums (leave out --no-checksums)"
                                : " was measured without checksums (add --no-checksums)"));
    }
    if (!backend.empty() && !then->backend.empty() && backend != then->backend) {
      refuse(then->shape + " was measured with the backend " + then->backend + ", not " + backend +
             " (give the same --io)");
    }
  }
  if (found == 0) refuse("has none of these shapes (give those that it has)");
}

BaselineVerdict compare_with_baseline(const Baseline& baseline, const io::BenchOptions& options,
                                      const std::vector<io::BenchResult>& results,
                                      const BaselineQuestion& question) {
  BaselineVerdict verdict;
  verdict.table = fmt::format("{:<44}{:>10}{:>10}{:>8}{:>12}{:>8}\n", "against the baseline",
                              "then GB/s", "now GB/s", "ratio", "then p99 ms", "now");
  for (const Baseline::Rate& then : baseline.rates) {
    const auto now = std::find_if(results.begin(), results.end(), [&](const io::BenchResult& r) {
      return !r.empty() && name_of(r.shape) == then.shape;
    });
    if (now == results.end()) {
      const bool wanted = !question.shapes_given || has(question.shapes, then.shape);
      verdict.missing += wanted ? 1 : 0;
      verdict.table +=
          fmt::format("{:<44}{:>10.3f}{:>10}{:>8}  {}\n", then.shape, then.bytes_per_s / 1e9, "-",
                      "-", wanted ? "NOT MEASURED" : "not asked for, not compared");
      continue;
    }
    const double ratio = now->bytes_per_s() / then.bytes_per_s;
    const double p99_s = std::max(now->read.p99_s, now->write.p99_s);
    const bool later = then.p99_s > 0 && p99_s * (1 - question.tolerance) > kP99Factor * then.p99_s;
    const bool slower = ratio < 1 - question.tolerance || later;
    ++verdict.compared;
    verdict.slower += slower ? 1 : 0;
    verdict.table += fmt::format("{:<44}{:>10.3f}{:>10.3f}{:>8.2f}{:>12.2f}{:>8.2f}{}\n",
                                 then.shape, then.bytes_per_s / 1e9, now->bytes_per_s() / 1e9,
                                 ratio, then.p99_s * 1e3, p99_s * 1e3,
                                 later    ? "  SLOWER (p99)"
                                 : slower ? "  SLOWER"
                                          : "");
  }
  for (const io::BenchResult& result : results) {
    if (result.empty() || find(baseline, name_of(result.shape)) != nullptr) continue;
    verdict.table += fmt::format("{:<44}{:>10}{:>10.3f}{:>8}  not in the baseline\n",
                                 name_of(result.shape), "-", result.bytes_per_s() / 1e9, "-");
  }
  verdict.table += differing_conditions(baseline, options, results);
  return verdict;
}

}  // namespace strata::cli
