// SPDX-License-Identifier: Apache-2.0
// An export that is killed at any step of its end leaves the old model or the new one under its
// name, and the next export takes away what else it left.
#include "tests/cli/mistake.h"

namespace strata::cli::test {
namespace {

constexpr int kKilled = 128 + SIGKILL;
constexpr int kCallsMax = 100;
// What changes names, in any order that the program chooses, and what comes between.
constexpr const char* kCalls[] = {"mkdir", "rename", "renameat2", "unlink", "unlinkat", "fsync"};

class KilledExport : public Mistakes {
 protected:
  void SetUp() override {
    Mistakes::SetUp();
    make_run();
    Process process({}, {.wrap = {"strace", "-qq", "-e", "trace=none", "true"}});
    has_strace_ = process.wait() == 0;
  }

  int export_step(int step, const Arguments& wrap = {}) {
    Process process(
        {"export", "--model", "good", "--resume",
         "run/checkpoints/step-00000" + std::to_string(step), "--out", "exported", "--force"},
        {.directory = sandbox_.path(), .wrap = wrap});
    const int code = process.wait();
    err_ = process.err();
    return code;
  }

  // Killed when it makes the call for the `count`th time. The leak checker of a sanitized build
  // cannot work under ptrace.
  int export_killed_at(const std::string& call, int count) {
    return export_step(2, {"env", "ASAN_OPTIONS=detect_leaks=0", "strace", "-f", "-qq", "-o",
                           "/dev/null", "-e", "trace=" + call, "-e",
                           "inject=" + call + ":signal=KILL:when=" + std::to_string(count)});
  }

  // What others see of the model: names and contents, without what is hidden.
  std::map<std::string, std::string> model() const {
    std::map<std::string, std::string> files;
    if (!std::filesystem::exists(sandbox_ / "exported")) return files;
    for (const auto& entry : std::filesystem::directory_iterator(sandbox_ / "exported")) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with(".")) files[name] = read_text(entry.path().string());
    }
    return files;
  }

  void begin(bool replaces) {
    std::filesystem::remove_all(sandbox_ / "exported");
    if (!replaces) return;
    ASSERT_EQ(export_step(1), 0) << err_;
  }

  // Returns how often it was killed.
  int kill_at_each(const std::string& call, bool replaces) {
    for (int count = 1; count <= kCallsMax; ++count) {
      SCOPED_TRACE(call + " " + std::to_string(count));
      begin(replaces);
      const auto old = model();
      const int code = export_killed_at(call, count);
      EXPECT_TRUE(model() == old || model() == new_) << "neither the old model nor the new one";
      if (code == 0) return count - 1;
      EXPECT_EQ(code, kKilled) << err_;
      EXPECT_EQ(export_step(2), 0) << err_;
      EXPECT_TRUE(model() == new_);
      for (const char* left : {"exported.partial", "exported.partial.replaced",
                               "exported/.strata-export", "exported/.config.json"}) {
        EXPECT_FALSE(std::filesystem::exists(sandbox_ / left)) << left;
      }
      if (testing::Test::HasFailure()) return count;
    }
    ADD_FAILURE() << "no end of " << call;
    return kCallsMax;
  }

  bool has_strace_ = false;
  std::map<std::string, std::string> new_;
  std::string err_;
};

TEST_F(KilledExport, LeavesTheOldModelOrTheNewOne) {
  if (!has_strace_) GTEST_SKIP() << "strace is missing or not permitted";
  begin(false);
  ASSERT_EQ(export_step(2), 0) << err_;
  new_ = model();
  ASSERT_EQ(new_.count("config.json"), 1u);
  for (const bool replaces : {false, true}) {
    int killed = 0;
    for (const char* call : kCalls) killed += kill_at_each(call, replaces);
    EXPECT_GE(killed, 6);
  }
}

// What is there is not ours, although it has the name.
TEST_F(KilledExport, DoesNotMakeTheUsersOwnDirectoryALeftover) {
  write_text(sandbox_ / "exported.partial", "");
  EXPECT_EQ(export_step(1), kUsage);
  std::filesystem::remove(sandbox_ / "exported.partial");
  std::filesystem::create_directory(sandbox_ / "exported.partial");
  write_text(sandbox_ / "exported.partial/notes", "mine");
  EXPECT_EQ(export_step(1), kUsage);
  EXPECT_NE(err_.find("was not left by an export (move it away)"), std::string::npos) << err_;
  EXPECT_EQ(read_text(sandbox_ / "exported.partial/notes"), "mine");
}

}  // namespace
}  // namespace strata::cli::test
