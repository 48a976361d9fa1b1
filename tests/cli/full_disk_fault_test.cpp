// SPDX-License-Identifier: Apache-2.0
// A file system that fills up while a run goes on: the run has failed, not been refused, and goes
// on from its last checkpoint when there is room.
#include <fstream>

#include "tests/cli/mistake.h"
#include "tests/support/small_file_system.h"

namespace strata::cli::test {
namespace {

// Leaves room for metrics, and none for a checkpoint.
void fill(const std::string& path) {
  constexpr uint64_t kLeft = 256 << 10;
  const std::string block(32 << 10, 'x');
  std::ofstream file(path, std::ios::app);
  while (file && std::filesystem::space(path).available > kLeft) file << block << std::flush;
}

// Of the newest whole checkpoint; 0 without one.
int64_t last_step(const std::filesystem::path& checkpoints) {
  int64_t last = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoints, none)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("step-") && name.find('.') == std::string::npos) {
      last = std::max<int64_t>(last, std::stoll(name.substr(5)));
    }
  }
  return last;
}

TEST(FullDisk, DuringARunIsAFailureThatKeepsTheLastCheckpoint) {
  const Sandbox sandbox;
  make_model(sandbox, "model", {});
  std::filesystem::create_directory(sandbox / "drive");
  const auto small =
      strata::test::SmallFileSystem::on_drive(sandbox / "drive", sandbox / "image", "24m");
  if (!small.refusal().empty()) GTEST_SKIP() << small.refusal();
  const auto with_steps = [](int64_t steps, const Arguments& more) {
    Arguments all = train({"--checkpoint-every", "20", "--steps", std::to_string(steps)}, "model");
    *(std::find(all.begin(), all.end(), "--out") + 1) = "drive/run";
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const std::filesystem::path checkpoints = sandbox / "drive/run/checkpoints";
  Process run(with_steps(1'000'000, {}), {.directory = sandbox.path()});
  while (last_step(checkpoints) == 0 && !run.is_over()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  while (!run.is_over()) {  // an old checkpoint that goes leaves room for another one
    fill(sandbox / "drive/filler");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(run.wait(), kFailed) << run.err();
  EXPECT_NE(run.err().find("cannot write checkpoint"), std::string::npos) << run.err();
  std::filesystem::remove(sandbox / "drive/filler");
  const int64_t step = last_step(checkpoints);
  ASSERT_GT(step, 0);
  Process again(with_steps(step + 3, {"--resume"}), {.directory = sandbox.path()});
  EXPECT_EQ(again.wait(), 0) << again.err();
  EXPECT_NE(again.out().find("done     3 steps"), std::string::npos) << again.out();
}

// Checkpoints that are there already are not counted again, nor what a killed export has left.
TEST(FullDisk, ARunThatFitsIsResumedOnTheSameDisk) {
  const Sandbox sandbox;
  make_model(sandbox, "model", {.hidden = 64, .vocabulary = 600});
  std::filesystem::create_directory(sandbox / "drive");
  const auto small = strata::test::SmallFileSystem::in_memory(sandbox / "drive", "24m");
  if (!small.refusal().empty()) GTEST_SKIP() << small.refusal();
  Arguments whole = train({"--checkpoint-every", "1", "--steps", "4"}, "model");
  *(std::find(whole.begin(), whole.end(), "--out") + 1) = "drive/run";
  Process run(whole, {.directory = sandbox.path()});
  ASSERT_EQ(run.wait(), 0) << run.err();
  const auto of_one =
      std::filesystem::file_size(sandbox / "drive/run/checkpoints/step-000004/state-rank00000.bin");
  const auto room = of_one + (2 << 20);  // of a checkpoint, and what is not in its state
  ASSERT_GT(3 * of_one, room);
  {
    std::ofstream filler(sandbox / "drive/filler");
    const std::string block(4096, 'x');
    while (std::filesystem::space(sandbox / "drive").available > room) {
      filler << block << std::flush;
    }
  }
  std::filesystem::rename(sandbox / "drive/run/model", sandbox / "drive/run/model.partial");
  write_text(sandbox / "drive/run/model.partial/.strata-export", "");
  Process resumed({"train", "--out", "drive/run", "--resume", "--steps", "9"},
                  {.directory = sandbox.path()});
  EXPECT_EQ(resumed.wait(), 0) << resumed.err();
}

// Checkpoints may lie on another drive than the run.
TEST(FullDisk, EachDriveNeedsRoomForWhatGoesThere) {
  const Sandbox sandbox;
  make_model(sandbox, "model", {.hidden = 64, .vocabulary = 600});
  std::filesystem::create_directory(sandbox / "drive");
  const auto small = strata::test::SmallFileSystem::in_memory(sandbox / "drive", "3m");
  if (!small.refusal().empty()) GTEST_SKIP() << small.refusal();
  for (const char* way : {"run", "drive/run"}) {
    const std::string run = way;
    const bool is_small = run != "run";  // where the run is; its checkpoints are on the other one
    std::filesystem::create_directories(sandbox / run);
    std::filesystem::create_directory(sandbox / (is_small ? "room" : "drive/room"));
    std::filesystem::create_symlink(sandbox / (is_small ? "room" : "drive/room"),
                                    sandbox / (run + "/checkpoints"));
    Arguments arguments = train({}, "model");
    *(std::find(arguments.begin(), arguments.end(), "--out") + 1) = run;
    Process process(arguments, {.directory = sandbox.path()});
    EXPECT_EQ(process.wait(), is_small ? 0 : kDoesNotFit) << process.err();
    if (!is_small) {
      EXPECT_NE(process.err().find("cannot write checkpoints and scratch"), std::string::npos)
          << process.err();
    }
  }
}

// The run has begun by then, so this is no mistake in its options.
TEST(FullDisk, AnOlderModelThatCannotBeTakenAwayIsAFailureOfTheRun) {
  const Sandbox sandbox;
  make_model(sandbox, "model", {});
  const auto steps = [](const char* count, const Arguments& more) {
    Arguments all = train(more, "model");
    *(std::find(all.begin(), all.end(), "--steps") + 1) = count;
    return all;
  };
  Process first(steps("1", {}), {.directory = sandbox.path()});
  ASSERT_EQ(first.wait(), 0) << first.err();
  const auto mounted = strata::test::SmallFileSystem::in_memory(sandbox / "run/model", "3m");
  if (!mounted.refusal().empty()) GTEST_SKIP() << mounted.refusal();
  Process further(steps("2", {"--resume"}), {.directory = sandbox.path()});
  EXPECT_EQ(further.wait(), kFailed) << further.err();
  EXPECT_NE(
      further.err().find("cannot take away the older model run/model: Device or resource busy"),
      std::string::npos)
      << further.err();
}

}  // namespace
}  // namespace strata::cli::test
