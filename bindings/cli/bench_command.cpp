// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/bench_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bindings/cli/bench_advice.h"
#include "bindings/cli/bench_arguments.h"
#include "bindings/cli/bench_baseline.h"
#include "bindings/cli/bench_machine.h"
#include "bindings/cli/bench_report.h"
#include "bindings/cli/bench_writes.h"
#include "bindings/cli/doctor_drive.h"
#include "bindings/cli/setup.h"
#include "bindings/cli/stop_signals.h"
#include "engine/base/units.h"
#include "engine/config/nearest_name.h"
#include "io/bench_checksums.h"
#include "io/bench_fio.h"
#include "io/bench_io.h"
#include "io/drive_weights.h"

namespace strata::cli {
namespace {

// A profile measured in less time does not replace what was measured before.
constexpr double kCarefulS = 1;
// A comparison fails where the whole interval of the ratio lies below this.
constexpr double kParity = 0.97;
// Of fewer rounds the interval says little.
constexpr uint32_t kLeastRounds = 7;

std::atomic<int> stop_signal{0};
std::atomic<bool> stop{false};

void on_signal(int signal) {
  if (!is_new_request(signal)) return;
  // Who asks twice does not want to wait: the scratch has no names and goes with the process.
  int none = 0;
  if (!stop_signal.compare_exchange_strong(none, signal)) _exit(128 + signal);
  stop = true;
}

void progress(const io::BenchShape& shape) {
  std::fprintf(stderr, "%s %s depth %u files %u\n", io::name_of(shape.mode),
               format_bytes(static_cast<int64_t>(shape.block_bytes)).c_str(), shape.depth,
               shape.files);
}

void say(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
}

WriteQuestion writes_of(const IoArguments& a) {
  const bool compares = a.compare_fio || a.compare_checksums;
  return {.shapes = shapes_of(a), .rounds = compares ? a.rounds : 0, .compares_fio = a.compare_fio};
}

void say_rounds(const IoArguments& a, const io::BenchShape& shape, size_t rounds) {
  if (rounds == a.rounds || stop) return;
  say(fmt::format("{}: only {} of {} rounds: --write-limit {} allows no more (raise it)",
                  name_of(shape), rounds, a.rounds, a.write_limit));
}

int compare(const IoArguments& a, const io::BenchOptions& options, IoReport& report) {
  io::IoBench bench(options);
  std::optional<io::FioBench> fio;
  uint32_t files = 0;
  bool slower = false;
  for (const io::BenchShape& shape : shapes_of(a)) {
    if (shape.mode == io::BenchMode::kTraining || stop) continue;  // fio has no such pattern
    progress(shape);
    if (a.compare_checksums) {
      report.checksums.push_back(io::compare_checksums(bench, shape, options.seconds, a.rounds));
      report.bytes_written = bench.bytes_written_by_all();
      say_rounds(a, shape, report.checksums.back().ratio.count);
      continue;
    }
    if (files != shape.files) {
      fio.reset();
      fio.emplace(options, shape.files);
    }
    files = shape.files;
    try {
      report.fio.push_back(io::compare_with_fio(bench, *fio, shape, options, a.rounds));
    } catch (const Error&) {
      report.bytes_written = bench.bytes_written_by_all();
      throw;
    }
    report.bytes_written = bench.bytes_written_by_all();
    const io::FioComparison& last = report.fio.back();
    say_rounds(a, shape, last.ratio.count);
    slower |= last.ratio.count >= kLeastRounds && last.ratio.high < kParity;
  }
  return slower ? 1 : 0;
}

// Rates of other shapes would mislead every later plan on this machine.
bool is_like_a_run(const IoArguments& a) {
  const std::vector<io::BenchShape> shapes = shapes_of(a);
  return a.backend == "auto" &&
         std::any_of(shapes.begin(), shapes.end(), [](const io::BenchShape& shape) {
           return shape.block_bytes >= uint64_t{512} << 10 &&
                  shape.block_bytes <= uint64_t{4} << 20 && shape.depth >= 8 && shape.files <= 4;
         });
}

// Whether a profile of these measurements may be what later plans use.
bool is_careful(const IoArguments& a) {
  return a.rates.empty() && a.seconds >= kCarefulS;
}

bool wants_machine(const IoArguments& a) {
  if (!measures_drives(a)) return false;
  return !a.profile.empty() || !a.model.empty() || (is_careful(a) && is_like_a_run(a));
}

// Says which shapes the limit on bytes written cut short, and what there is not for that reason.
// Returns whether the profile may be kept.
bool say_what_ended(const IoArguments& a, const std::optional<MeasuredDrive>& drive,
                    const IoReport& report) {
  const bool whole = drive && drive->shortest_s >= kCarefulS;
  const bool would_keep = measures_drives(a) && is_careful(a) && is_like_a_run(a);
  const std::string ended = ended_by_write_limit(report.results);
  if (!ended.empty()) {
    say("--write-limit " + a.write_limit + ": " + ended +
        (would_keep && !whole ? "; for that reason no profile is kept for later plans" : "") +
        " (raise it, or lower --size or --seconds)");
  }
  if (measures_drives(a) && is_careful(a) && !is_like_a_run(a)) {
    say("not kept for later plans: no shape is like a run's, with blocks of 512 KiB to 4 MiB, a "
        "depth of at least 8 and --backend auto");
  }
  return would_keep && whole;
}

// What the results say of this machine, and of the run that the user has in mind.
void conclude(const IoArguments& a, io::IoBench& bench, IoReport& report) {
  const std::optional<MeasuredDrive> measured = measured_drive(report.results);
  const bool keep = say_what_ended(a, measured, report);
  if (!wants_machine(a)) return;
  if (!measured && a.model.empty() && a.profile.empty()) return;
  if (!measured) {
    throw Error(ErrorCode::kConfig, std::string(a.model.empty() ? "--profile" : "--for") +
                                        ": no shape has all of its read, write and mixed rates; " +
                                        ended_by_write_limit(report.results) +
                                        " (raise --write-limit " + a.write_limit +
                                        ", or lower --size or --seconds)");
  }
  measure_latency(bench, report.options, report.results, true, report.idle);
  if (stop) return;
  exec::DriveFigures drive = measured->figures;
  drive.latency_s = report.idle->read.p50_s;
  drive.weights = report.options.weights;
  if (!keep && a.profile.empty() && a.model.empty()) return;
  if (!a.profile.empty() || keep || a.machine.empty()) {
    const MeasuredMachine here = measured_machine(a.directories, drive, keep);
    report.machine = here.machine;
    report.profile_path = here.path;
  }
  if (!a.profile.empty()) {
    config::write_machine(a.profile, *report.machine);
    report.profile_path = a.profile;
  }
  if (a.model.empty()) return;
  AdviceQuestion question;
  question.model = a.model;
  question.tokens = a.tokens;
  question.sequence_length = a.sequence_length;
  if (!a.host_memory.empty()) {
    question.host_memory = static_cast<int64_t>(bytes_of("--host-memory", a.host_memory));
  }
  question.machine = a.machine.empty() ? *report.machine : config::read_machine(a.machine);
  exec::set_drive(drive, question.machine);
  question.drives = static_cast<int>(drives_below(a.directories).size());
  question.free_bytes = train::free_bytes_of(a.directories);
  question.stop = &stop;
  std::fprintf(stderr, "planning a step of %s\n", question.model.c_str());
  report.advice = advise(question);
}

void print(const IoArguments& a, const IoReport& report) {
  const std::string text = a.json ? io_json(report) : a.csv ? io_csv(report) : io_text(report);
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  if (!a.json && !a.csv) return;
  if (report.baseline) std::fputs(report.baseline->table.c_str(), stderr);
  if (report.advice) std::fputs(advice_text(*report.advice).c_str(), stderr);
}

// With stripes by the speed of each directory, as a run has them.
io::BenchOptions weighted(io::BenchOptions options, IoReport& report) {
  const uint64_t writes = options.directories.size() * io::kWeightWriteBytes;
  if (options.directories.size() < 2) return options;
  if (writes + options.bytes >= options.write_limit_bytes) {
    say(
        fmt::format("stripes are even: to measure the speed of each directory writes up to {} more "
                    "than the scratch, which --write-limit does not allow (raise it)",
                    format_bytes(static_cast<int64_t>(writes))));
  } else {
    const io::DriveWeights measured = io::measure_weights({.directories = options.directories,
                                                           .deadline_s = options.deadline_s,
                                                           .stop = options.stop});
    options.weights = measured.weights;
    report.bytes_written = measured.bytes_written;
  }
  report.options.weights = options.weights;
  return options;
}

int measure(const IoArguments& a, const io::BenchOptions& options, IoReport& report) {
  const BaselineQuestion question = {
      .shapes = shapes_of(a), .shapes_given = a.shapes_given, .tolerance = a.tolerance};
  std::optional<Baseline> baseline;
  if (!a.baseline.empty()) {
    baseline = read_baseline(a.baseline);
    check_comparable(*baseline, options, question);
  }
  if (!a.machine.empty()) (void)config::read_machine(a.machine);
  if (!a.model.empty()) {
    check_question({.model = a.model, .tokens = a.tokens, .sequence_length = a.sequence_length});
  }
  io::IoBench bench(weighted(options, report));
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

int bench_io(const IoArguments& a) {
  check(a);
  io::BenchOptions options = options_of(a);
  options.stop = &stop;
  on_stop_signals(on_signal);
  IoReport report;
  report.options = options;
  int code = 0;
  try {
    std::fputs(write_limit_warning(options, writes_of(a)).c_str(), stderr);
    const bool compares = a.compare_fio || a.compare_checksums;
    code = compares ? compare(a, options, report) : measure(a, options, report);
  } catch (const Error& error) {
    // What was measured until then has taken minutes.
    if (!report.empty()) print(a, report);
    if (error.code() == ErrorCode::kInterrupted) return 128 + stop_signal;
    throw;
  }
  if (!report.empty()) print(a, report);
  return stop ? 128 + stop_signal : code;
}

std::vector<std::string> flags_of(const CLI::App& io) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : io.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& words,
                         std::string_view otherwise) {
  const std::vector<std::string_view> names(words.begin(), words.end());
  return config::did_you_mean(config::nearest_name(word, names), otherwise);
}

// Says what is misspelt before the parser says what is missing then.
void refuse_unknown(const CLI::App& io, const std::vector<std::string>& words) {
  if (words.empty()) return;
  if (!words[0].starts_with("-") && words[0] != "io") {
    throw Error(ErrorCode::kUsage,
                "bench: " + words[0] + ": no such benchmark" +
                    did_you_mean(words[0], {"io"}, "strata bench --help lists them"));
  }
  const std::vector<std::string> flags = flags_of(io);
  for (const std::string& word : words) {
    if (word == "--") return;
    const std::string flag = word.substr(0, word.find('='));
    if (!word.starts_with("--") || std::find(flags.begin(), flags.end(), flag) != flags.end()) {
      continue;
    }
    throw Error(ErrorCode::kUsage,
                "bench: " + flag + " is not an option" +
                    did_you_mean(flag, flags, "strata bench io --help lists the options"));
  }
}

}  // namespace

config::CompletedCommand bench_completion() {
  using enum config::FlagValue;
  CLI::App io;
  IoArguments arguments;
  declare(io, arguments);
  const std::map<std::string, config::FlagValue> paths = {{"nvme", kDirectory},
                                                          {"profile", kFile},
                                                          {"baseline", kFile},
                                                          {"machine", kFile},
                                                          {"for", kFile}};
  const std::map<std::string, std::vector<std::string>> choices = {
      {"mode", {"read", "write", "mixed", "training"}},
      {"backend", {"auto", "io_uring", "threads"}}};
  config::CompletedCommand command = {
      "bench", "Measure this machine's drives as the I/O engine uses them.", {"io"}};
  for (const CLI::Option* option : io.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      config::CompletedFlag flag = {name, option->get_description()};
      if (option->get_expected_max() > 0) flag.value = kOther;
      if (paths.contains(name)) flag.value = paths.at(name);
      if (choices.contains(name)) {
        flag.value = kChoice;
        flag.choices = choices.at(name);
      }
      flag.metavar = name;
      command.flags.push_back(flag);
    }
  }
  return command;
}

int bench_command(int argc, char** argv) {
  CLI::App app("Measures this machine", "strata bench");
  app.require_subcommand(1);
  CLI::App* io =
      app.add_subcommand("io", "Drives: rates, latencies and processor time of the I/O engine");
  IoArguments arguments;
  declare(*io, arguments);
  refuse_unknown(*io, std::vector<std::string>(argv + 1, argv + argc));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  for (const char* flag : {"--mode", "--block", "--depth", "--files"}) {
    arguments.shapes_given |= io->count(flag) > 0;
  }
  return bench_io(arguments);
}

}  // namespace strata::cli
