// SPDX-License-Identifier: Apache-2.0
#include <execinfo.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "bindings/cli/command_options.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/doctor_command.h"
#include "bindings/cli/job_environment.h"
#include "bindings/cli/process_sinks.h"
#include "engine/base/environment.h"
#include "engine/base/error.h"
#include "engine/config/completion.h"
#include "engine/config/json.h"
#include "engine/config/nearest_name.h"
#include "engine/config/options.h"
#include "engine/text/text_unicode.h"

namespace strata::cli {
namespace {

constexpr int kOtherFailure = 4;

int dispatch(config::Command command, const config::Options& options, const config::Json& deepspeed,
             const std::vector<std::string>& launched) {
  strata::Environment environment(process_sinks(static_cast<double>(options.io_deadline)));
  const strata::Environment::Scope scope(&environment);
  switch (command) {
    case config::Command::kInit:
      return run_init(options);
    case config::Command::kTrain:
      return run_train(options, deepspeed);
    case config::Command::kLaunch:
      return run_launch(options, launched);
    case config::Command::kEval:
      return run_eval(options);
    case config::Command::kPlan:
      return run_plan(options, deepspeed);
    case config::Command::kDoctor:
      return run_doctor(options, [](const char* name) { return std::getenv(name); });
    case config::Command::kExport:
      return run_export(options);
    case config::Command::kGenerate:
      return run_generate(options);
    case config::Command::kTokenize:
      return run_tokenize(options);
    case config::Command::kModels:
      return run_models(options);
    case config::Command::kBench:
      return run_bench(options);
    case config::Command::kBenchLink:
      return run_bench_link(options);
    case config::Command::kBenchKernels:
      return run_bench_kernels(options);
    case config::Command::kReport:
      return run_report(options);
  }
  return kOtherFailure;
}

int run_completion(const std::vector<std::string>& args) {
  if (args.size() != 2) {
    throw Error(ErrorCode::kUsage, "completion: no shell is given (strata completion bash)");
  }
  const bool help = args[1] == "--help" || args[1] == "-h";
  std::fputs(help ? "Print a script that completes command lines.\n\n"
                    "Usage: source <(strata completion bash), in ~/.bashrc\n"
                  : config::completion_text(args[1]).c_str(),
             stdout);
  return 0;
}

// A command, and the number of words in its name.
struct NamedCommand {
  config::Command command;
  int words;
};

// The command of `strata bench`, which needs a second word.
NamedCommand bench_of(const std::vector<std::string>& args) {
  constexpr std::string_view kSubjects[] = {"io", "link", "kernels"};
  const std::string word = args.size() > 1 ? args[1] : "";
  if (const auto command = config::parse_command("bench " + word)) return {*command, 2};
  if (word.empty() || word.starts_with("-")) {
    throw Error(ErrorCode::kUsage,
                "bench: the subject is missing (strata bench io, strata bench link or strata bench "
                "kernels)");
  }
  throw Error(ErrorCode::kUsage,
              "bench: " + word + ": no such benchmark" +
                  config::did_you_mean(config::nearest_name(word, kSubjects),
                                       "give bench io, bench link or bench kernels"));
}

NamedCommand command_of(const std::vector<std::string>& args) {
  if (args[0] == "bench") return bench_of(args);
  const auto command = config::parse_command(args[0]);
  if (command) return {*command, 1};
  if (args[0].starts_with("-")) {
    throw Error(ErrorCode::kUsage, "command: it is missing before " + args[0] +
                                       " (give it first: strata train " + args[0] +
                                       " ...; strata --help lists the commands)");
  }
  throw Error(ErrorCode::kUsage,
              "command: " + args[0] + ": no such command" +
                  config::did_you_mean(config::nearest_command(args[0]), "see strata --help"));
}

// `strata help COMMAND` and `strata COMMAND help` are `strata COMMAND --help`.
std::vector<std::string> without_help_word(std::vector<std::string> args) {
  if (args.size() < 2) return args;
  const bool follows =
      args.back() == "help" && (args.size() == 2 || (args.size() == 3 && args[0] == "bench"));
  if (args[0] == "help") {
    args.erase(args.begin());
  } else if (follows) {
    args.pop_back();
  } else {
    return args;
  }
  args.emplace_back("--help");
  return args;
}

// Gives the command of a started rank the number of ranks, unless it says so itself. True for a
// rank that leaves printing to rank 0.
bool join_ranks(std::vector<std::string>& args) {
  const std::optional<StartedRank> started = rank_of_environment();
  if (!started) return false;
  const bool says = std::ranges::any_of(
      args, [](const std::string& arg) { return arg == "--ranks" || arg.starts_with("--ranks="); });
  if (!says) args.insert(args.end(), {"--ranks", std::to_string(started->ranks)});
  return started->rank > 0;
}

// The records of a run are JSON, so that a path of other bytes would not be found again.
void require_utf8(const std::vector<std::string>& args) {
  for (const std::string& arg : args) {
    if (text::find_invalid_utf8(arg) == std::string::npos) continue;
    throw Error(ErrorCode::kUsage,
                "train: " + arg + ": not UTF-8, as the records of a run are (rename it)");
  }
}

int run(const std::vector<std::string>& given) {
  const std::vector<std::string> args = without_help_word(given);
  if (args.empty() || args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    std::fputs(config::help_text().c_str(), args.empty() ? stderr : stdout);
    return args.empty() ? 2 : 0;
  }
  if (args[0] == "--version" || args[0] == "-V" || args[0] == "version") {
    std::puts("strata " STRATA_VERSION);
    return 0;
  }
  if (args[0] == "completion") return run_completion(args);
  if (args[0] == "bench" && args.size() == 2 && (args[1] == "--help" || args[1] == "-h")) {
    std::fputs(config::help_text_of("bench").c_str(), stdout);
    return 0;
  }
  const auto [command, words] = command_of(args);
  std::vector<std::string> rest(args.begin() + words, args.end());
  std::vector<std::string> launched;
  if (command == config::Command::kLaunch) {
    const auto end = std::find(rest.begin(), rest.end(), "--");
    if (end == rest.end() && std::find(rest.begin(), rest.end(), "train") != end) {
      throw Error(ErrorCode::kUsage,
                  "launch: -- is missing before train (strata launch --ranks 2 -- train ...)");
    }
    if (end != rest.end()) launched.assign(end + 1, rest.end());
    rest.erase(end, rest.end());
  }
  const bool names_run = command == config::Command::kReport && !rest.empty();
  if (names_run && !rest[0].starts_with("-")) rest.insert(rest.begin(), "--run");
  if (command == config::Command::kTrain) require_utf8(rest);
  const bool follows = command == config::Command::kTrain && join_ranks(rest);
  config::DeepspeedReport report;
  const config::Options options = resolved_options(command, rest, !follows, report);
  if (options.help) {
    std::fputs(config::help_text(command).c_str(), stdout);
    return 0;
  }
  return dispatch(command, options, report.lines, launched);
}

// Throws when standard output is incomplete, for example on a full disk. A closed pipe is not a
// failure, and train reports by itself what it could not print.
int answered(const std::vector<std::string>& args, int code) {
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (code != 0 || written || args[0] == "train" || args[0] == "launch") {
    return code;
  }
  struct pollfd output = {STDOUT_FILENO, POLLOUT, 0};
  if (poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0) return code;
  throw Error(ErrorCode::kIo,
              "standard output: incomplete (is the disk full, or the file closed?)");
}

// The next file that is opened would take the place of a closed standard stream, and get its text.
void keep_places_of_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0) continue;
    // Reading and writing fail, as on a closed stream.
    (void)!open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

// Each rank reads the files that all ranks of a checkpoint have written. The limit that binds a
// program until it asks for more is there for those that wait with select().
void raise_open_files() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);  // the limit stays where it cannot be raised
}

}  // namespace
}  // namespace strata::cli

int main(int argc, char** argv) {
  strata::cli::keep_places_of_streams();
  // The C library loads what unwinds the frames of an exception when it is first needed, and ends
  // the process where memory is short then.
  void* frame = nullptr;
  (void)backtrace(&frame, 1);
  // A file over a size limit is reported as an error of that file, not by a signal.
  std::signal(SIGXFSZ, SIG_IGN);
  // A reader that closes the pipe (`strata train | head`) does not end a run.
  std::signal(SIGPIPE, SIG_IGN);
  strata::cli::raise_open_files();
  try {
    const std::vector<std::string> args(argv + 1, argv + argc);
    return strata::cli::answered(args, strata::cli::run(args));
  } catch (const strata::Error& error) {
    std::fprintf(stderr, "strata: error: %s\n", strata::printable(error.what()).c_str());
    return error.exit_code();
  } catch (const std::filesystem::filesystem_error& error) {
    const strata::Error told = strata::system_error(
        strata::ErrorCode::kConfig, "cannot use " + error.path1().string(), error.code().value());
    std::fprintf(stderr, "strata: error: %s\n", strata::printable(told.what()).c_str());
    return told.exit_code();
  } catch (const std::bad_alloc&) {
    std::fputs("strata: error: out of memory (free memory, or raise its limit: ulimit -v)\n",
               stderr);
    return 4;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "strata: error: %s\n", strata::printable(error.what()).c_str());
    return 4;
  }
}
