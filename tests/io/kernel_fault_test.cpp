// SPDX-License-Identifier: Apache-2.0
// Faults through the real kernel: io_uring refused or interrupted, memory that may not be locked, a
// full file system, 4 KiB sectors, and a FUSE disk that fails. What the machine does not permit is
// skipped.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <functional>
#include <sstream>

#include "aligned_buffer.h"
#include "engine/base/environment.h"
#include "io/channel.h"
#include "io/checksum.h"
#include "tests/support/refuse_io_uring.h"

namespace strata::io {
namespace {

struct Output {
  int status = -1;
  std::string text;
};

Output shell(const std::string& command) {
  Output output;
  FILE* pipe =
      popen(("unset GTEST_TOTAL_SHARDS GTEST_SHARD_INDEX; " + command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return output;
  std::array<char, 4096> part;
  while (const size_t count = fread(part.data(), 1, part.size(), pipe))
    output.text.append(part.data(), count);
  output.status = pclose(pipe);
  return output;
}

// Runs in a child process, so that limits and filters stay there; returns what it logged and
// printed.
Output in_child(const std::function<bool()>& work) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    close(ends[0]);
    strata::Environment environment({.log = [](LogLevel, std::string_view line) {
      std::printf("%s\n", std::string(line).c_str());
    }});
    const strata::Environment::Scope scope(&environment);
    bool good = false;
    try {
      good = work();
    } catch (const Error& error) {
      std::printf("%s\n", error.what());
    }
    std::fflush(nullptr);
    _exit(good ? 0 : 1);
  }
  close(ends[1]);
  Output output;
  std::array<char, 4096> part;
  for (ssize_t count; (count = read(ends[0], part.data(), part.size())) > 0;) {
    output.text.append(part.data(), static_cast<size_t>(count));
  }
  close(ends[0]);
  waitpid(child, &output.status, 0);
  return output;
}

// Writes and reads 8 MiB on the backend that kAuto picks. Prints the backend, and a hash of what
// was read or the first error. True when the bytes are right or the error names file and offset.
bool move_bytes(const std::string& directory, bool with_regions) {
  Volume volume({.directories = {directory}, .bytes = 16 * kMi});
  const AlignedBuffer written(8 * kMi, 1);
  const AlignedBuffer read(8 * kMi);
  ChannelOptions options = {.depth = 4, .request_bytes = 512 << 10, .deadline_s = 10};
  if (with_regions) options.regions = {{read.data(), read.bytes()}};
  Channel channel(volume, options);
  std::string error = run_one(channel, Direction::kWrite, kMi, written, 3);
  if (error.empty()) error = run_one(channel, Direction::kRead, kMi, read, 3);
  std::printf("backend %s ", channel.backend_name());
  if (error.empty()) {
    std::printf("hash %016llx\n",
                static_cast<unsigned long long>(checksum_block(read.data(), 8 * kMi, 0, 0)));
    return read == written;
  }
  std::printf("error %s\n", error.c_str());
  return error.find("scratch file in ") != std::string::npos &&
         error.find(" at offset ") != std::string::npos;
}

std::string hash_in(const std::string& text) {
  const size_t at = text.find("hash ");
  return at == std::string::npos ? "none: " + text : text.substr(at, 21);
}

TEST(AutoBackend, MovesBytesOrNamesTheError) {
  const test::TemporaryDirectory directory;
  EXPECT_TRUE(move_bytes(directory.path(), true));
}

TEST(AutoBackend, ASeccompFilterLeadsToThreadsWithTheSameBits) {
  const test::TemporaryDirectory directory;
  const Output free = in_child([&] { return move_bytes(directory.path(), false); });
  const Output filtered =
      in_child([&] { return test::refuse_io_uring(EPERM) && move_bytes(directory.path(), false); });
  EXPECT_EQ(filtered.status, 0) << filtered.text;
  EXPECT_EQ(hash_in(filtered.text), hash_in(free.text));
  EXPECT_NE(filtered.text.find("backend threads"), std::string::npos) << filtered.text;
  EXPECT_NE(
      filtered.text.find("io_uring is not available, a thread pool does the I/O: io_uring_setup: "
                         "Operation not permitted (a container's seccomp profile"),
      std::string::npos)
      << filtered.text;
}

TEST(AutoBackend, MemoryThatMayNotBeLockedIsUsedUnregistered) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to drop the right to lock memory";
  const test::TemporaryDirectory directory("/dev/shm");
  ASSERT_EQ(chown(directory.path().c_str(), 65534, 65534), 0);
  const Output output = in_child([&] {
    const rlimit little = {64 << 10, 64 << 10};  // enough for a ring, not for its buffers
    if (setrlimit(RLIMIT_MEMLOCK, &little) != 0 || setuid(65534) != 0) return false;
    Volume volume(
        {.directories = {directory.path()}, .bytes = 2 * kMi, .allow_memory_filesystem = true});
    const AlignedBuffer buffer(kMi);
    Channel first(volume, {.regions = {{buffer.data(), kMi}}});
    Channel second(volume, {.regions = {{buffer.data(), kMi}}});
    return run_one(first, Direction::kWrite, 0, buffer, 1).empty() &&
           run_one(second, Direction::kRead, 0, buffer, 1).empty();
  });
  EXPECT_EQ(output.status, 0) << output.text;
  const size_t first = output.text.find("RLIMIT_MEMLOCK is 64 KiB, each channel needs 1 MiB");
  EXPECT_NE(first, std::string::npos) << output.text;
  EXPECT_EQ(output.text.find("RLIMIT_MEMLOCK", first + 1), std::string::npos) << "said twice";
}

// The same test program again, under strace, with a system call made to fail.
class Strace : public testing::TestWithParam<const char*> {
 protected:
  // The leak checker of a sanitized build cannot work under ptrace.
  static Output inject(const std::string& what) {
    return shell("ASAN_OPTIONS=detect_leaks=0 timeout 60 strace -f -qq -o /dev/null -e trace=" +
                 what.substr(0, what.find(':')) + " -e inject=" + what + " /proc/" +
                 std::to_string(getpid()) +
                 "/exe --gtest_filter=AutoBackend.MovesBytesOrNamesTheError");
  }
  void SetUp() override {
    if (shell("strace -qq -e trace=none true").status != 0)
      GTEST_SKIP() << "strace is missing or not permitted";
  }
};

TEST_P(Strace, ARefusedSetupLeadsToThreads) {
  const Output output = inject(std::string("io_uring_setup:error=") + GetParam());
  EXPECT_EQ(output.status, 0) << output.text;
  EXPECT_NE(output.text.find("backend threads hash"), std::string::npos) << output.text;
}
INSTANTIATE_TEST_SUITE_P(Errors, Strace, testing::Values("EPERM", "ENOSYS", "ENOMEM"));

using StraceOnce = Strace;

TEST_F(StraceOnce, InterruptedEntersAreRepeated) {
  for (const char* error : {"EINTR", "EAGAIN", "EBUSY"}) {
    const Output output = inject(std::string("io_uring_enter:error=") + error + ":when=2+2");
    EXPECT_EQ(output.status, 0) << output.text;
    EXPECT_NE(output.text.find(" hash "), std::string::npos) << error << output.text;
  }
}

TEST_F(StraceOnce, AnEnterThatFailsForGoodIsAnErrorThatNamesTheFile) {
  const Output output = inject("io_uring_enter:error=EPERM:when=3+");
  EXPECT_EQ(output.status, 0) << output.text;
  if (output.text.find("backend threads") != std::string::npos) GTEST_SKIP() << "no io_uring here";
  EXPECT_NE(output.text.find("error "), std::string::npos) << output.text;
}

TEST_F(StraceOnce, RegistrationThatIsRefusedCostsOnlySpeed) {
  const Output output = inject("io_uring_register:error=EOPNOTSUPP");
  EXPECT_EQ(output.status, 0) << output.text;
  EXPECT_NE(output.text.find(" hash "), std::string::npos) << output.text;
}

// A file system of the test's own; unmounted when it ends.
class Mounted {
 public:
  Mounted(const std::string& source, const std::string& path, const char* kind, const char* options)
      : path_(path),
        error_(mount(source.c_str(), path.c_str(), kind, 0, options) == 0 ? 0 : errno) {}
  ~Mounted() {
    if (error_ == 0) umount2(path_.c_str(), MNT_DETACH);
  }
  int error() const { return error_; }

 private:
  std::string path_;
  int error_;
};

TEST(FullFileSystem, OneBlockTooFewIsRefusedBeforeAnythingElse) {
  const test::TemporaryDirectory directory;
  const Mounted small("tmpfs", directory.path(), "tmpfs", "size=4m");
  if (small.error() != 0) GTEST_SKIP() << "mounting is not permitted: " << strerror(small.error());
  for (const uint64_t bytes : {4 * kMi + 4096, 5 * kMi, 8 * kMi}) {
    try {
      const Volume volume(
          {.directories = {directory.path()}, .bytes = bytes, .allow_memory_filesystem = true});
      FAIL() << "accepted " << bytes;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDoesNotFit);
      EXPECT_NE(std::string(error.what()).find("missing "), std::string::npos) << error.what();
    }
    EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  }
  const Volume fits(
      {.directories = {directory.path()}, .bytes = 3 * kMi, .allow_memory_filesystem = true});
}

TEST(FullFileSystem, AllFilesOfADirectoryAreCounted) {
  const test::TemporaryDirectory directory;
  const Mounted small("tmpfs", directory.path(), "tmpfs", "size=4m");
  if (small.error() != 0) GTEST_SKIP() << "mounting is not permitted: " << strerror(small.error());
  try {
    const Volume volume({.directories = {directory.path()},
                         .files_per_directory = 4,
                         .bytes = 8 * kMi,
                         .stripe_bytes = kMi,
                         .allow_memory_filesystem = true});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDoesNotFit);
    EXPECT_NE(std::string(error.what()).find("needs 8 MiB"), std::string::npos) << error.what();
  }
}

TEST(FullFileSystem, AnotherProcessFillingTheDriveDoesNotHarmWhatIsReserved) {
  const test::TemporaryDirectory directory;
  const Mounted small("tmpfs", directory.path(), "tmpfs", "size=4m");
  if (small.error() != 0) GTEST_SKIP() << "mounting is not permitted: " << strerror(small.error());
  Volume volume(
      {.directories = {directory.path()}, .bytes = 2 * kMi, .allow_memory_filesystem = true});
  Channel channel(volume, {});
  std::ofstream filler(directory.path() + "/filler");
  filler << std::string(8 * kMi, 'x');
  filler.flush();
  EXPECT_FALSE(filler.good());
  const AlignedBuffer buffer(2 * kMi, 1);
  EXPECT_EQ(run_one(channel, Direction::kWrite, 0, buffer, 1), "");
  EXPECT_EQ(run_one(channel, Direction::kRead, 0, buffer, 1), "");
}

TEST(LoopDevice, FourKibSectorsWork) {
  const test::TemporaryDirectory directory;
  const std::string image = directory.path() + "/image";
  const std::string root = directory.path() + "/root";
  std::filesystem::create_directory(root);
  const Output attached =
      shell("truncate -s 64M " + image + " && losetup -b 4096 --find --show " + image);
  if (attached.status != 0) GTEST_SKIP() << "no loop device: " << attached.text;
  const std::string device = attached.text.substr(0, attached.text.find('\n'));
  const Output formatted = shell("mkfs.ext4 -q -b 4096 " + device);
  if (formatted.status == 0) {
    const Mounted mounted(device, root, "ext4", "");
    EXPECT_EQ(mounted.error(), 0) << strerror(mounted.error());
    if (mounted.error() == 0) {
      Volume volume({.directories = {root}, .bytes = 8 * kMi});
      EXPECT_TRUE(volume.files()[0].direct);
      EXPECT_NE(fcntl(volume.files()[0].fd, F_GETFL) & O_DIRECT, 0) << "it says so and is not";
      EXPECT_EQ(volume.alignment(), 4096u);
      Channel channel(volume, {});
      const AlignedBuffer written(4 * kMi - 4096, 1);
      const AlignedBuffer read(written.bytes());
      EXPECT_EQ(run_one(channel, Direction::kWrite, kMi, written, 1), "");
      EXPECT_EQ(run_one(channel, Direction::kRead, kMi, read, 1), "");
      EXPECT_TRUE(read == written);
    }
  }
  shell("losetup -d " + device);
  if (formatted.status != 0) GTEST_SKIP() << "no mkfs.ext4: " << formatted.text;
}

}  // namespace
}  // namespace strata::io
