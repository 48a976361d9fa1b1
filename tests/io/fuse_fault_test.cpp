// SPDX-License-Identifier: Apache-2.0
// A disk that fails, under io_uring and the thread pool through the real kernel: each kind of
// fault, on reads and on writes, ends in the right bytes or in an error that names file and offset,
// within the deadline.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <optional>
#include <thread>

#include "aligned_buffer.h"
#include "tests/support/fuse_mount.h"
#include "tests/support/log_capture.h"

namespace strata::io {
namespace {

constexpr uint64_t kBytes = 256 << 10;

// Whether the program has ended, up to threads of it that the kernel keeps.
bool has_ended(pid_t program) {
  std::ifstream file("/proc/" + std::to_string(program) + "/stat");
  std::string text;
  std::getline(file, text);
  return text.find(") Z ") != std::string::npos;
}

class FuseDisk : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    disk_.emplace(directory_.path());
    if (!disk_->refusal().empty()) GTEST_SKIP() << disk_->refusal();
    if (GetParam() == Backend::kThreads) return;
    try {
      const Ring probe({.backend = Backend::kUring, .files = {{0, "stdin"}}});
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  void TearDown() override {
    channel_.reset();
    volume_.reset();
  }

  // What does not hang is done by then, however busy the machine.
  static constexpr double kAmple_s = 20;
  // What hangs is waited for so long.
  static constexpr double kShort_s = 2;

  void open_volume(double deadline_s = kAmple_s) {
    volume_.emplace(VolumeOptions{.directories = {directory_.path()}, .bytes = 2 * kBytes});
    open_channel(deadline_s);
  }

  // Another one for the same volume.
  void open_channel(double deadline_s) {
    channel_.reset();
    channel_.emplace(*volume_, ChannelOptions{.backend = GetParam(),
                                              .depth = 4,
                                              .request_bytes = 64 << 10,
                                              .warn_after_s = 0.5,
                                              .deadline_s = deadline_s});
    ASSERT_TRUE(volume_->files()[0].direct);
    ASSERT_STREQ(channel_->backend_name(),
                 GetParam() == Backend::kThreads ? "threads" : "io_uring");
  }

  void fault(const std::string& line) const { ASSERT_TRUE(disk_->fault(line)) << line; }

  // New bytes each time: what an earlier write left behind is wrong.
  std::string write_all() {
    written_ = AlignedBuffer(kBytes, ++writes_);
    return run_one(*channel_, Direction::kWrite, 0, written_, 1);
  }
  // "right", the error, or "silently wrong".
  std::string read_all() {
    const std::string error = run_one(*channel_, Direction::kRead, 0, read_, 1);
    if (!error.empty()) return error;
    return read_ == written_ ? "right" : "silently wrong";
  }
  void expect_named(const std::string& error, const std::string& cause) const {
    EXPECT_NE(error.find("scratch file in " + directory_.path() + " at offset "), std::string::npos)
        << error;
    EXPECT_NE(error.find(cause), std::string::npos) << error;
  }

  const test::LogCapture captured_;
  const test::TemporaryDirectory directory_;
  std::optional<test::FuseMount> disk_;
  uint64_t writes_ = 0;
  AlignedBuffer written_{kBytes};
  const AlignedBuffer read_{kBytes};
  std::optional<Volume> volume_;
  std::optional<Channel> channel_;
};

TEST_P(FuseDisk, AGoodDiskWorksAndIsReadAgainAfterASlip) {
  open_volume();
  EXPECT_EQ(write_all(), "");
  EXPECT_EQ(read_all(), "right");
  for (const char* kind : {"eio", "flip", "short", "misdirect", "eagain"}) {
    fault(std::string("read ") + kind + " 1 1");
    EXPECT_EQ(read_all(), "right") << kind;
  }
}

// A drive or file system without room for another request: it is asked again, but not for ever.
TEST_P(FuseDisk, ARefusedRequestIsTriedAgain) {
  // Under io_uring it is the kernel that asks again, until the deadline.
  const bool asks_itself = GetParam() == Backend::kThreads;
  open_volume(60);
  fault("write eagain 1 20");
  EXPECT_EQ(write_all(), "");
  fault("read eagain 1 20");
  EXPECT_EQ(read_all(), "right");
  EXPECT_EQ(volume_->counters().rereads, 0u);
  const std::string cause = asks_itself ? "Resource temporarily unavailable" : "no answer for ";
  const auto expect_refused = [&](const std::string& direction, const auto& move) {
    if (!asks_itself) open_channel(kShort_s);
    fault(direction + " eagain 0 1000000");
    expect_named(move(), cause);
    fault(direction + " eagain 0 0");
    open_channel(kAmple_s);  // once the kernel asks no more
  };
  expect_refused("read", [&] { return read_all(); });
  EXPECT_EQ(read_all(), "right");
  expect_refused("write", [&] { return write_all(); });
}

// This file system has no O_TMPFILE: scratch has a name for a moment, and a run that died then left
// it.
TEST_P(FuseDisk, AScratchFileThatADeadRunLeftIsRemoved) {
  const std::string left = directory_.path() + "/strata.lock.scratch";
  close(open(left.c_str(), O_CREAT | O_WRONLY, 0600));
  ASSERT_EQ(access(left.c_str(), F_OK), 0);
  open_volume();
  const std::string said = captured_.text();
  EXPECT_NE(said.find("removed scratch of a dead run: " + left), std::string::npos) << said;
  EXPECT_NE(access(left.c_str(), F_OK), 0);
  EXPECT_EQ(write_all(), "");
  EXPECT_EQ(read_all(), "right");
}

TEST_P(FuseDisk, ReadsThatKeepFailingAreErrors) {
  open_volume();
  EXPECT_EQ(write_all(), "");
  fault("read eio 0 1000000");
  expect_named(read_all(), "Input/output error");
  fault("read flip 0 1000000");
  expect_named(read_all(), "wrong bytes read");
  fault("read misdirect 0 1000000");
  expect_named(read_all(), "wrong bytes read");
  fault("read eio 0 0");
  EXPECT_EQ(read_all(), "right");
}

TEST_P(FuseDisk, SilentWriteFaultsAreFoundWhenRead) {
  open_volume();
  for (const char* kind : {"stale", "torn", "flip", "misdirect"}) {
    fault(std::string("write ") + kind + " 2 1");
    EXPECT_EQ(write_all(), "") << kind;
    expect_named(read_all(), "wrong bytes read");
    EXPECT_EQ(write_all(), "");
    EXPECT_EQ(read_all(), "right");
  }
}

TEST_P(FuseDisk, AFailedWritePoisonsTheFile) {
  for (const char* kind : {"eio", "enospc", "short"}) {
    channel_.reset();
    volume_.reset();
    open_volume();
    EXPECT_EQ(write_all(), "");
    fault(std::string("write ") + kind + " 2 1");
    const std::string error = write_all();
    if (error.empty()) {  // a short write may be continued
      EXPECT_EQ(std::string(kind), "short");
      EXPECT_EQ(read_all(), "right");
      continue;
    }
    expect_named(error, std::string(kind) == "enospc" ? "No space left" : "");
    expect_named(read_all(), "its content is unknown");
  }
}

TEST_P(FuseDisk, AHangIsAnErrorAtTheDeadline) {
  open_volume();
  EXPECT_EQ(write_all(), "");
  open_channel(kShort_s);
  fault("read hang 1 1");
  const double start_s = channel_->now_s();
  expect_named(read_all(), "no answer for ");
  EXPECT_GE(channel_->now_s() - start_s, kShort_s);
  EXPECT_LT(channel_->now_s() - start_s, 20);
  // The kernel holds the request until the disk's process ends; only then can the channel go.
  disk_->kill();
}

TEST_P(FuseDisk, WhenEverythingHangsWhatWaitsFailsToo) {
  open_volume();
  EXPECT_EQ(write_all(), "");
  open_channel(kShort_s);
  fault("read hang 0 1000000");
  const AlignedBuffer other(kBytes);
  Transfer first = transfer_of(Direction::kRead, 0, read_, 1);
  Transfer second = transfer_of(Direction::kRead, 0, other, 1);
  channel_->submit(&first);
  channel_->submit(&second);
  EXPECT_TRUE(drain(*channel_, 30));
  ASSERT_TRUE(first.error != nullptr && second.error != nullptr);
  EXPECT_EQ(first.error->code(), ErrorCode::kDeadline);
  EXPECT_EQ(second.error->code(), ErrorCode::kDeadline);
  EXPECT_EQ(channel_->lost_requests(), 4u);
  expect_named(second.error->what(), "every request of this channel hangs");
  disk_->kill();
}

// Longer than a ring waits for what is lost, and within the deadline.
TEST_P(FuseDisk, AChannelThatGoesWaitsForASlowDriveUntilTheDeadline) {
  open_volume(30);
  EXPECT_EQ(write_all(), "");
  fault("read slower 0 1");
  Transfer read = transfer_of(Direction::kRead, 0, read_, 1);
  channel_->submit(&read);
  channel_->wait(0.01);
  channel_.reset();
  EXPECT_EQ(captured_.text().find("hang: "), std::string::npos) << captured_.text();
  EXPECT_FALSE(read.done);
}

// A channel that goes while the drive still reads waits for it: the bytes must not land in memory
// that has another use by then.
TEST_P(FuseDisk, AChannelThatGoesWhileTheDriveReadsLeavesTheMemoryAlone) {
  open_volume();
  EXPECT_EQ(write_all(), "");
  fault("read slow 0 4");
  Transfer read = transfer_of(Direction::kRead, 0, read_, 1);
  channel_->submit(&read);
  channel_.reset();
  EXPECT_FALSE(read.done);
  const AlignedBuffer expected(kBytes, 77);
  std::memcpy(read_.data(), expected.data(), kBytes);
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  EXPECT_TRUE(read_ == expected);
}

// A hang is reported once; where its sink returns, the memory stays until the kernel lets go of it.
TEST_P(FuseDisk, AHangThatDoesNotEndTheProgramIsWaitedFor) {
  int hangs = 0;
  Environment environment({.hang = [&](const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeadline);
    ++hangs;
    disk_->kill();
  }});
  open_volume();
  EXPECT_EQ(write_all(), "");
  open_channel(kShort_s);
  fault("read hang 1 1");
  expect_named(read_all(), "no answer for ");
  const Environment::Scope scope(&environment);
  EXPECT_EQ(channel_->lost_requests(), 1u);
  channel_.reset();
  EXPECT_EQ(hangs, 1);
}

// Its error says so, and the sink of it may end the process.
TEST_P(FuseDisk, AProgramEndsWhenTheDriveHangsForGood) {
  int said[2];
  ASSERT_EQ(pipe2(said, O_CLOEXEC), 0);
  const pid_t program = fork();
  if (program == 0) {
    Environment ending({.hang = [&](const Error& error) {
      (void)!::write(said[1], error.what(), std::strlen(error.what()));
      _exit(error.exit_code());
    }});
    const Environment::Scope scope(&ending);
    open_volume();
    (void)write_all();
    open_channel(kShort_s);
    fault("read hang 1 1");
    (void)read_all();
    channel_.reset();
    _exit(99);
  }
  close(said[1]);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!has_ended(program) && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_TRUE(has_ended(program));
  disk_->kill();  // lets go of a thread that stands in the kernel, and of a program that waits
  int status = 0;
  waitpid(program, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 4);
  char text[4096];
  const ssize_t count = read(said[0], text, sizeof text);
  close(said[0]);
  const std::string error(text, static_cast<size_t>(std::max<ssize_t>(count, 0)));
  EXPECT_NE(error.find("read of 65536 bytes at offset "), std::string::npos) << error;
  EXPECT_NE(error.find(" of scratch file in " + directory_.path()), std::string::npos) << error;
  EXPECT_NE(error.find("the kernel still uses its memory, so this process must end"),
            std::string::npos)
      << error;
}

TEST_P(FuseDisk, ADiskThatDiesIsAnError) {
  open_volume();
  EXPECT_EQ(write_all(), "");
  disk_->kill();
  expect_named(read_all(), "");
}

std::string backend_label(const testing::TestParamInfo<Backend>& info) {
  return info.param == Backend::kAuto ? "Auto" : "Threads";
}
INSTANTIATE_TEST_SUITE_P(Backends, FuseDisk, testing::Values(Backend::kAuto, Backend::kThreads),
                         backend_label);

}  // namespace
}  // namespace strata::io
