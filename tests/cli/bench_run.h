// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/cli/mistake.h"

// `strata bench io` in a sandbox with a drive.
namespace strata::cli::test {

class BenchTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(sandbox_ / "drive");
    setenv("XDG_CACHE_HOME", (sandbox_ / "cache").c_str(), 1);
  }

  // A short one, with what a test adds.
  static Arguments bench(const Arguments& more) {
    Arguments all = {"bench", "io", "--nvme", "drive", "--size", "64MiB"};
    const auto give = [&](const std::string& flag, const std::string& value) {
      if (std::find(more.begin(), more.end(), flag) == more.end()) {
        all.insert(all.end(), {flag, value});
      }
    };
    give("--block", "64KiB");
    give("--depth", "4");
    give("--seconds", "0.05");
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  int run(const Arguments& arguments) {
    Process process(arguments, {.directory = sandbox_.path()});
    const int code = process.wait();
    out_ = process.out();
    err_ = process.err();
    return code;
  }

  void expect_empty_drive() const {
    EXPECT_TRUE(std::filesystem::is_empty(sandbox_ / "drive")) << "something is left";
  }

  const Sandbox sandbox_;
  std::string out_;
  std::string err_;
};

}  // namespace strata::cli::test
