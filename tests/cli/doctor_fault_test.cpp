// SPDX-License-Identifier: Apache-2.0
// `strata doctor` on a disk that fails: it moves a block, so it says what a run would meet.
#include <nlohmann/json.hpp>

#include "tests/cli/mistake.h"
#include "tests/support/fuse_mount.h"

namespace strata::cli::test {
namespace {

using nlohmann::json;
using strata::test::FuseMount;

class DoctorFaults : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(sandbox_ / "drive"); }

  // What it says of the scratch on that drive.
  json ask() {
    Process process({"doctor", "--nvme", "drive", "--json"}, {.directory = sandbox_.path()});
    process.wait();
    for (const json& line : json::parse(process.out())) {
      const std::string text = line["text"];
      for (const char* part : {"scratch", "failed", "wrong bytes", "no answer"}) {
        if (text.find(part) != std::string::npos) return line;
      }
    }
    ADD_FAILURE() << process.out() << process.err();
    return {};
  }

  const Sandbox sandbox_;
};

TEST_F(DoctorFaults, ADriveThatLosesOrSpoilsABlockFails) {
  const FuseMount disk(sandbox_ / "drive");
  if (!disk.refusal().empty()) GTEST_SKIP() << disk.refusal();
  const json good = ask();
  EXPECT_NE(good["status"], "FAIL") << good;
  EXPECT_NE(good["text"].get<std::string>().find("a block was written and read back by "),
            std::string::npos)
      << good;
  EXPECT_GE(disk.written_bytes(), uint64_t{128} << 10) << "zeros that reserve, and the block";
  const std::pair<const char*, const char*> cases[] = {
      {"read eio 1 1000", "read failed"},  // after the look at the lock
      {"read flip 1 1000", "wrong bytes read"},
      {"write flip 0 1000", "wrong bytes read"},
  };
  for (const auto& [fault, text] : cases) {
    ASSERT_TRUE(disk.fault(fault));
    const json line = ask();
    EXPECT_EQ(line["status"], "FAIL") << line;
    EXPECT_NE(line["text"].get<std::string>().find(text), std::string::npos) << line;
    EXPECT_NE(line["fix"].get<std::string>().find("use another drive"), std::string::npos) << line;
    ASSERT_TRUE(
        disk.fault(std::string(fault).substr(0, std::string(fault).find(' ')) + " eio 0 0"));
  }
}

// It hangs until the disk answers again: what was found before is said all the same.
TEST_F(DoctorFaults, ADriveThatHangsFailsAndTheRestIsSaid) {
  const FuseMount disk(sandbox_ / "drive");
  if (!disk.refusal().empty()) GTEST_SKIP() << disk.refusal();
  std::filesystem::create_directory(sandbox_ / "good");
  ASSERT_TRUE(disk.fault("read hang 1 1"));
  Process process({"doctor", "--nvme", "good,drive", "--json"}, {.directory = sandbox_.path()});
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!process.has_left() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_TRUE(process.has_left()) << process.err();
  ASSERT_TRUE(disk.fault("read none 0 0"));
  EXPECT_EQ(process.wait(), kUsage) << process.err();
  const json lines = json::parse(process.out());
  const auto about = [&](const std::string& subject, const std::string& text) {
    return std::any_of(lines.begin(), lines.end(), [&](const json& line) {
      return line["subject"] == subject &&
             line["text"].get<std::string>().find(text) != std::string::npos;
    });
  };
  EXPECT_TRUE(about("good", "a block was written and read back")) << lines;
  EXPECT_TRUE(about("drive", "the drive hangs")) << lines;
  EXPECT_EQ(lines.back()["status"], "FAIL") << lines;
}

}  // namespace
}  // namespace strata::cli::test
