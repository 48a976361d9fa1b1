// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"

// What tests of the library share: a directory, options of a small model, and the check that
// nothing is printed.
namespace strata::test {

namespace fs = std::filesystem;

inline constexpr int64_t kT = 8;

class SessionTest : public testing::Test {
 protected:
  SessionTest()
      : directory_(std::string(STRATA_BINARY_DIR) + "/session-" + std::to_string(getpid())) {
    fs::remove_all(directory_);
    fs::create_directories(directory_ + "/nvme");
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
  }
  ~SessionTest() override {
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    fs::remove_all(directory_);
  }

  static std::string quoted(const std::string& text) { return "\"" + text + "\""; }

  // Options of a small model, with more of them behind.
  static std::string options(const std::string& more = "", const std::string& model = "") {
    return "{\"model\": " + quoted(model.empty() ? STRATA_MODELS "/tinyllama" : model) +
           ", \"sequence_length\": 8, \"threads\": 1, \"accumulate\": 2" + more + "}";
  }
  // Of a machine that need not be measured.
  static std::string of_machine() { return ", \"machine\": " + quoted(STRATA_MACHINE); }
  std::string run_options(const std::string& more = "") {
    std::ofstream file(directory_ + "/tokens.bin", std::ios::binary);
    for (int64_t i = 0; i <= 12 * kT; ++i) file << static_cast<char>(i * i % 59) << '\0';
    return options(", \"data\": " + quoted(directory_ + "/tokens.bin") +
                   ", \"out\": " + quoted(directory_ + "/run") + ", \"steps\": 6, \"lr\": 1e-2" +
                   of_machine() + more);
  }

  // A session whose steps run here; the machine is measured by the first test that has one.
  Session open(const std::string& text) {
    return Session::open(text, sinks(), STRATA_BINARY_DIR "/session-cache");
  }
  Sinks sinks() {
    return {.log = [this](LogLevel, std::string_view line) { log_ += std::string(line) + "\n"; }};
  }

  const std::string directory_;
  std::string log_;
};

// [M, B, T] of a step.
struct Tokens {
  explicit Tokens(int step) : inputs(2 * kT), targets(2 * kT) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = static_cast<int32_t>((i * i + static_cast<size_t>(step)) % 59);
      targets[i] = (inputs[i] + 1) % 59;
    }
  }
  Batch batch() const { return {inputs, targets}; }
  std::vector<int32_t> inputs, targets;
};

inline ErrorCode code_of(const std::function<void()>& call, std::string* text = nullptr) {
  try {
    call();
  } catch (const Error& error) {
    if (text != nullptr) *text = error.what();
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::kIo;
}

}  // namespace strata::test
