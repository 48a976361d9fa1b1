// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/cli/program.h"

namespace strata::cli::test {

// Runs of `strata train` with ranks, of a small model in a sandbox.
class LaunchedRuns : public testing::Test {
 protected:
  void SetUp() override { make_model(sandbox_, "model", {}); }

  static Arguments train(const std::string& out, const Arguments& more) {
    Arguments all = {"train",        "--model",       "model",    "--data",
                     STRATA_TEXT,    "--out",         out,        "--sequence-length",
                     "32",           "--schedule",    "constant", "--machine",
                     STRATA_MACHINE, "--host-memory", "400MiB"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static Arguments launch(int ranks, const Arguments& command) {
    Arguments all = {"launch", "--ranks", std::to_string(ranks), "--"};
    all.insert(all.end(), command.begin(), command.end());
    return all;
  }
  ProcessOptions here() const { return {.directory = sandbox_.path()}; }

  // What the last checkpoint of a run holds.
  std::string state_of(const Arguments& arguments, const ProcessOptions& options) const {
    Process process(arguments, options);
    EXPECT_EQ(process.wait(), 0) << process.err();
    return state_in(process.out());
  }
  std::string state_of(const Arguments& arguments) const { return state_of(arguments, here()); }

  // Step, loss and norm of each step.
  std::string losses_of(const std::string& out) const {
    std::ifstream file(sandbox_ / (out + "/metrics.jsonl"));
    std::string all, line;
    while (std::getline(file, line)) all += line.substr(0, line.find("\"lr\"")) + "\n";
    return all;
  }
  // The processes of a run of this test.
  std::vector<pid_t> ranks_of(const std::string& out) const {
    std::vector<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      const std::string line = read_of_process(std::stoi(name), "cmdline");
      const std::string command("\0train\0", 7);  // behind the program
      std::error_code gone;
      if (line.find(command) == line.find('\0') && line.find(command) != line.npos &&
          line.find('\0' + out + '\0') != std::string::npos &&
          std::filesystem::equivalent(entry.path() / "cwd", sandbox_.path(), gone)) {
        found.push_back(std::stoi(name));
      }
    }
    return found;
  }
  bool all_end(const std::string& out, double limit_s) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s);
    while (!ranks_of(out).empty() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return ranks_of(out).empty();
  }

  static size_t count(const std::string& text, const std::string& part) {
    size_t found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
      ++found;
    }
    return found;
  }
  // Waits until the run, which has been started `starts` times, does steps.
  static bool trains(const Process& process, size_t starts) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    const auto is_training = [&] {
      const std::string out = process.out();
      const size_t at = out.rfind("saving ");
      return count(out, "saving ") == starts && out.find("\nstep ", at) != std::string::npos;
    };
    while (!is_training() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return is_training();
  }
  // Of the newest checkpoint; 0: there is none.
  int64_t newest_step() const {
    int64_t step = 0;
    std::error_code missing;
    for (const auto& entry :
         std::filesystem::directory_iterator(sandbox_ / "run/checkpoints", missing)) {
      const std::string name = entry.path().filename();
      const std::string number = name.substr(name.find('-') + 1);
      if (!name.starts_with("step-") || number.find_first_not_of("0123456789") != number.npos) {
        continue;
      }
      step = std::max<int64_t>(step, std::stoll(number));
    }
    return step;
  }
  bool saves_after(int64_t step) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (newest_step() <= step && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return newest_step() > step;
  }

  const Sandbox sandbox_;
};

}  // namespace strata::cli::test
