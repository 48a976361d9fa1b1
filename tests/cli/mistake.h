// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>

#include "tests/cli/program.h"

// A mistake that a user makes, and the check that the program refuses it and leaves the disk as it
// was.
namespace strata::cli::test {

inline constexpr int kUsage = 2;
inline constexpr int kDoesNotFit = 3;
inline constexpr int kFailed = 4;
// A refusal comes at once: in processor time, and where nothing is busy in seconds.
inline constexpr double kCpuLimitS = 2;
inline constexpr double kLimitS = 30;

struct Mistake {
  std::string name;
  std::function<void(const Sandbox&)> prepare;  // makes the mistake's files; may be empty
  Arguments arguments;
  int code = kUsage;
  std::vector<std::string> says;  // parts of the message
  ProcessOptions process = {};
};

// `strata train` with what is right in every case, then what is wrong.
inline Arguments train(const Arguments& more, const std::string& model = "good") {
  Arguments all = {"train", "--model", model, "--out", "out", "--machine", STRATA_MACHINE};
  all.insert(all.end(), more.begin(), more.end());
  const auto give = [&](const std::string& flag, const std::string& value) {
    if (std::find(all.begin(), all.end(), flag) != all.end()) return;
    all.insert(all.end(), {flag, value});
  };
  give("--data", STRATA_TEXT);
  give("--sequence-length", "32");
  give("--steps", "2");
  return all;
}

inline Arguments train_into(const std::string& out) {
  Arguments arguments = train({});
  arguments[4] = out;
  return arguments;
}

class Mistakes : public testing::Test {
 protected:
  void SetUp() override { make_model(sandbox_, "good", {}); }

  void expect_refusals(const std::vector<Mistake>& mistakes) {
    for (const Mistake& mistake : mistakes) {
      SCOPED_TRACE(mistake.name);
      expect_refusal(mistake);
    }
  }

  void expect_refusal(const Mistake& mistake) {
    if (mistake.prepare) mistake.prepare(sandbox_);
    const auto before = sandbox_.snapshot();
    ProcessOptions process = mistake.process;
    process.directory = sandbox_.path();
    const auto start = std::chrono::steady_clock::now();
    Process run(mistake.arguments, process);
    const int code = run.wait();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(code, mistake.code) << run.err();
    EXPECT_LT(run.cpu_s(), kCpuLimitS);
    EXPECT_LT(seconds.count(), kLimitS);
    for (const std::string& text : mistake.says) {
      EXPECT_NE(run.err().find(text), std::string::npos) << "no \"" << text << "\" in\n"
                                                         << run.err();
    }
    EXPECT_TRUE(sandbox_.snapshot() == before) << "something changed on the disk";
    EXPECT_FALSE(std::filesystem::exists(sandbox_ / "out"));
  }

  // One whole run in "run", with checkpoints of both its steps.
  void make_run() {
    Process run(
        {"train", "--model", "good", "--data", STRATA_TEXT, "--out", "run", "--machine",
         STRATA_MACHINE, "--sequence-length", "32", "--steps", "2", "--checkpoint-every", "1"},
        {.directory = sandbox_.path()});
    ASSERT_EQ(run.wait(), 0) << run.err();
  }

  const Sandbox sandbox_;
};

// A copy of the good model as "bad", to be spoiled.
inline void copy_good_model(const Sandbox& sandbox) {
  std::filesystem::remove_all(sandbox / "bad");
  std::filesystem::copy(sandbox / "good", sandbox / "bad");
}

}  // namespace strata::cli::test
