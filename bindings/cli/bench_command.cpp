// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "bindings/cli/bench_advice.h"
#include "bindings/cli/bench_baseline.h"
#include "bindings/cli/bench_machine.h"
#include "bindings/cli/bench_report.h"
#include "bindings/cli/bench_writes.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/process_sinks.h"
#include "bindings/cli/stop_signals.h"
#include "engine/base/units.h"
#include "engine/config/option_rules.h"
#include "engine/config/option_table.h"
#include "engine/config/option_values.h"
#include "engine/exec/machine_probe.h"
#include "engine/session/bench.h"
#include "io/bench_checksums.h"
#include "io/bench_fio.h"
#include "io/bench_io.h"
#include "io/drives.h"
#include "io/scratch_file.h"

namespace strata::cli {

using session::shapes_of;

namespace {

std::atomic<int> stop_signal{0};
std::atomic<bool> stop{false};

void on_signal(int signal) {
  if (!is_new_request(signal)) return;
  // A second request ends the program at once; the scratch has no names and disappears with the
  // process.
  int none = 0;
  if (!stop_signal.compare_exchange_strong(none, signal)) _exit(128 + signal);
  stop = true;
  close_now();
}

void progress(const io::BenchShape& shape) {
  std::fprintf(stderr, "%s %s depth %u files %u\n", io::name_of(shape.mode),
               format_bytes(static_cast<int64_t>(shape.block_bytes)).c_str(), shape.depth,
               shape.files);
}

void print_note(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
}

// --write-limit as a user writes it.
std::string write_limit_of(const config::Options& a) {
  return config::value_text(*config::find_option("write-limit"), a);
}

uint32_t rounds_of(const config::Options& a) {
  return static_cast<uint32_t>(a.rounds);
}

WriteQuestion writes_of(const config::Options& a) {
  const bool compares = a.compare_fio || a.compare_checksums;
  return {
      .shapes = shapes_of(a), .rounds = compares ? rounds_of(a) : 0, .compares_fio = a.compare_fio};
}

void print_rounds(const config::Options& a, const io::BenchShape& shape, size_t rounds) {
  if (rounds == rounds_of(a) || stop) return;
  print_note(fmt::format("{}: only {} of {} rounds: --write-limit {} allows no more (raise it)",
                         name_of(shape), rounds, a.rounds, write_limit_of(a)));
}

int compare(const config::Options& a, const io::BenchOptions& options, IoReport& report) {
  io::IoBench bench(options);
  std::optional<io::FioBench> fio;
  uint32_t files = 0;
  bool failed = false;
  for (const io::BenchShape& shape : shapes_of(a)) {
    if (stop) break;
    progress(shape);
    if (a.compare_checksums) {
      report.checksums.push_back(
          io::compare_checksums(bench, shape, options.seconds, rounds_of(a)));
      report.bytes_written = bench.bytes_written_by_all();
      print_rounds(a, shape, report.checksums.back().ratio.count);
      continue;
    }
    if (files != shape.files) {
      fio.reset();
      fio.emplace(options, shape.files);
    }
    files = shape.files;
    try {
      report.fio.push_back(io::compare_with_fio(bench, *fio, shape, options, rounds_of(a)));
    } catch (const Error&) {
      report.bytes_written = bench.bytes_written_by_all();
      throw;
    }
    report.bytes_written = bench.bytes_written_by_all();
    const io::FioComparison& last = report.fio.back();
    print_rounds(a, shape, last.ratio.count);
    const io::FioVerdict verdict = io::verdict_of(last);
    const bool none = verdict == io::FioVerdict::kNone;
    if (none && !stop) {
      print_note(
          fmt::format("{}: no verdict: {} rounds are too few for an interval, at least {} are "
                      "needed (--rounds, --write-limit)",
                      name_of(shape), last.ratio.count, io::kFioLeastRounds));
    }
    // A missing verdict counts as a failure.
    failed |= verdict == io::FioVerdict::kSlower || (none && rounds_of(a) >= io::kFioLeastRounds);
  }
  return failed ? 1 : 0;
}

// Whether the shapes are like those of a run, since rates of other shapes would mislead later
// plans.
bool is_like_a_run(const config::Options& a) {
  const std::vector<io::BenchShape> shapes = shapes_of(a);
  return a.io == config::IoBackend::kAuto &&
         std::any_of(shapes.begin(), shapes.end(), [](const io::BenchShape& shape) {
           return shape.block_bytes >= uint64_t{512} << 10 &&
                  shape.block_bytes <= uint64_t{4} << 20 && shape.depth >= 8 && shape.files <= 4;
         });
}

// Whether later plans may use a profile of these measurements.
bool is_careful(const config::Options& a) {
  return !a.is_given("nvme-rate") && a.seconds >= kCarefulS;
}

bool wants_machine(const config::Options& a) {
  if (!config::measures_drives(a)) return false;
  return !a.profile.empty() || !a.for_model.empty() || (is_careful(a) && is_like_a_run(a));
}

// Reports which shapes the limit on bytes written cut short, and which results are missing for that
// reason. Returns whether the profile may be kept.
bool say_what_ended(const config::Options& a, const std::optional<MeasuredDrive>& drive,
                    const IoReport& report) {
  const bool whole = drive && drive->is_careful();
  const bool would_keep = config::measures_drives(a) && is_careful(a) && is_like_a_run(a);
  const std::string ended = ended_by_write_limit(report.results);
  if (!ended.empty()) {
    print_note(
        "--write-limit " + write_limit_of(a) + ": " + ended +
        (would_keep && !whole ? "; for that reason no profile is kept for later plans" : "") +
        " (raise it, or lower --size or --seconds)");
  }
  if (config::measures_drives(a) && is_careful(a) && !is_like_a_run(a)) {
    print_note(
        "not kept for later plans: no shape is like a run's, with blocks of 512 KiB to 4 MiB, a "
        "depth of at least 8 and --io auto");
  }
  return would_keep && whole;
}

// Derives the machine's profile and the advice for the run of --for from the results.
void conclude(const config::Options& a, io::IoBench& bench, IoReport& report) {
  const std::optional<MeasuredDrive> measured = measured_drive(report.results);
  const bool keep = say_what_ended(a, measured, report);
  if (!wants_machine(a)) return;
  if (!measured && a.for_model.empty() && a.profile.empty()) return;
  if (!measured) {
    throw Error(ErrorCode::kConfig, std::string(a.for_model.empty() ? "--profile" : "--for") +
                                        ": no shape has all of its read, write and mixed rates; " +
                                        ended_by_write_limit(report.results) +
                                        " (raise --write-limit " + write_limit_of(a) +
                                        ", or lower --size or --seconds)");
  }
  measure_latency(bench, report.options, report.results, true, report.idle);
  if (stop) return;
  exec::DriveFigures drive = measured->figures;
  drive.latency_s = report.idle->read.p50_s;
  drive.weights = report.options.weights;
  drive.count = std::ssize(io::drives_below(a.nvme));
  if (!keep && a.profile.empty() && a.for_model.empty()) return;
  if (!a.profile.empty() || keep || a.machine.empty()) {
    const MeasuredMachine here = measured_machine(a.nvme, drive, keep);
    report.machine = here.machine;
    report.profile_path = here.path;
  }
  if (!a.profile.empty()) {
    config::write_machine(a.profile, *report.machine);
    report.profile_path = a.profile;
  }
  if (a.for_model.empty()) return;
  AdviceQuestion question;
  question.model = a.for_model;
  question.tokens = a.tokens;
  question.sequence_length = a.sequence_length;
  question.host_memory = a.host_memory;
  question.machine = a.machine.empty() ? *report.machine : config::read_machine(a.machine);
  exec::set_drive(drive, question.machine);
  question.drives = static_cast<int>(drive.count);
  question.free_bytes = io::free_bytes_of(a.nvme);
  question.stop = &stop;
  std::fprintf(stderr, "planning a step of %s\n", question.model.c_str());
  report.advice = advise(question);
}

void print(const config::Options& a, const IoReport& report) {
  const std::string text = a.json ? io_json(report) : a.csv ? io_csv(report) : io_text(report);
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  if (!a.json && !a.csv) return;
  if (report.baseline) std::fputs(report.baseline->table.c_str(), stderr);
  if (report.advice) std::fputs(advice_text(*report.advice).c_str(), stderr);
}

// For printing the results so far when a hanging drive ends the program.
const config::Options* open_options = nullptr;
const IoReport* open_report = nullptr;

int print_open_report(int code) {
  if (!open_report->empty()) print(*open_options, *open_report);
  return stop ? 128 + stop_signal : code;
}

int measure(const config::Options& a, io::BenchOptions options, IoReport& report) {
  constexpr std::array kShapes = {"mode", "block", "depth", "files"};
  const BaselineQuestion question = {
      .shapes = shapes_of(a),
      .shapes_given = std::ranges::any_of(kShapes, [&](auto name) { return a.is_given(name); }),
      .tolerance = a.tolerance};
  std::optional<Baseline> baseline;
  if (!a.baseline.empty()) {
    baseline = read_baseline(a.baseline);
    check_comparable(*baseline, options, question);
  }
  if (!a.for_model.empty() && !a.machine.empty()) (void)config::read_machine(a.machine);
  if (!a.for_model.empty()) {
    check_question(
        {.model = a.for_model, .tokens = a.tokens, .sequence_length = a.sequence_length});
  }
  report.bytes_written = session::set_weights(options);
  report.options.weights = options.weights;
  io::IoBench bench(options);
  bench.charge(report.bytes_written);
  for (const io::BenchShape& shape : shapes_of(a)) {
    if (stop) break;
    progress(shape);
    const io::BenchResult result = bench.measure(shape);
    if (!result.interrupted || !result.empty()) report.results.push_back(result);
    if (wants_machine(a) && !stop) {
      measure_latency(bench, options, report.results, false, report.idle);
    }
    report.bytes_written = bench.bytes_written_by_all();
  }
  if (stop) return 0;
  conclude(a, bench, report);
  if (!baseline) return 0;
  report.baseline = compare_with_baseline(*baseline, options, report.results, question);
  return report.baseline->failed() ? 1 : 0;
}

}  // namespace

int run_bench(const config::Options& a) {
  session::check_bench(a);
  io::BenchOptions options = session::bench_options(a);
  options.stop = &stop;
  on_stop_signals(on_signal);
  IoReport report;
  report.options = options;
  open_options = &a;
  open_report = &report;
  set_hang_report(print_open_report);
  int code = 0;
  try {
    std::fputs(write_limit_warning(options, writes_of(a)).c_str(), stderr);
    const bool compares = a.compare_fio || a.compare_checksums;
    code = compares ? compare(a, options, report) : measure(a, options, report);
  } catch (const Error& error) {
    // Prints the results so far, which took minutes.
    if (!report.empty()) print(a, report);
    if (error.code() == ErrorCode::kInterrupted) return 128 + stop_signal;
    throw;
  }
  if (!report.empty()) print(a, report);
  return stop ? 128 + stop_signal : code;
}

}  // namespace strata::cli
