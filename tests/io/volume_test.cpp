// SPDX-License-Identifier: Apache-2.0
// A volume places every block once, by weight; it is reserved, private, locked, and leaves nothing;
// what cannot work is refused with a message that names it.
#include "io/volume.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "aligned_buffer.h"
#include "io/scratch_file.h"

namespace strata::io {
namespace {

VolumeOptions in_memory(const std::vector<const test::TemporaryDirectory*>& directories,
                        uint64_t bytes) {
  VolumeOptions options;
  for (const test::TemporaryDirectory* directory : directories)
    options.directories.push_back(directory->path());
  options.bytes = bytes;
  options.allow_memory_filesystem = true;
  return options;
}

std::pair<ErrorCode, std::string> refusal(const VolumeOptions& options) {
  try {
    const Volume volume(options);
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {ErrorCode::kUsage, "accepted"};
}

TEST(Volume, EveryStripeHasAPlaceOfItsOwnInsideItsFile) {
  const test::TemporaryDirectory a("/dev/shm"), b("/dev/shm"), c("/dev/shm");
  for (const std::vector<double>& weights :
       {std::vector<double>{}, {1, 1, 1}, {3, 1, 2}, {0.1, 7, 2.5}}) {
    VolumeOptions options = in_memory({&a, &b, &c}, 1111 * 16384 - 4096);
    options.weights = weights;
    options.stripe_bytes = 16384;
    options.block_bytes = 4096;
    const Volume volume(options);
    std::set<std::pair<uint32_t, uint64_t>> places;
    std::map<uint32_t, uint64_t> stripes;
    for (uint64_t address = 0; address < volume.bytes(); address += 4096) {
      const Location at = volume.locate(address);
      ASSERT_TRUE(places.insert({at.file, at.offset}).second) << address;
      ASSERT_GE(at.bytes, 4096u);
      ASSERT_LE(at.offset + at.bytes, volume.files()[at.file].bytes);
      ++stripes[at.file];
    }
    const double sum = weights.empty() ? 3 : weights[0] + weights[1] + weights[2];
    for (uint32_t file = 0; file < 3; ++file) {
      const double share = (weights.empty() ? 1 : weights[file]) / sum;
      EXPECT_NEAR(static_cast<double>(stripes[file]) / (1111 * 4), share, 0.01);
    }
  }
}

// 64 files: the slow directories get no more than their weight because each file gets a stripe.
TEST(Volume, WeightsHoldWithManyFiles) {
  const test::TemporaryDirectory a("/dev/shm"), b("/dev/shm"), c("/dev/shm"), d("/dev/shm");
  VolumeOptions options = in_memory({&a, &b, &c, &d}, 7168 * 4096);
  options.weights = {4, 1, 1, 1};
  options.files_per_directory = 16;
  options.stripe_bytes = options.block_bytes = 4096;
  const Volume volume(options);
  std::set<std::pair<uint32_t, uint64_t>> places;
  std::vector<int> stripes(64, 0);
  for (uint64_t address = 0; address < volume.bytes(); address += 4096) {
    const Location at = volume.locate(address);
    ASSERT_TRUE(places.insert({at.file, at.offset}).second) << address;
    ASSERT_LE(at.offset + at.bytes, volume.files()[at.file].bytes);
    ++stripes[at.file];
  }
  for (int file = 0; file < 64; ++file) EXPECT_NEAR(stripes[file], file % 4 == 0 ? 256 : 64, 6);
}

TEST(Volume, OneFileIsContiguous) {
  const test::TemporaryDirectory directory("/dev/shm");
  const Volume volume(in_memory({&directory}, 8 * kMi));
  EXPECT_EQ(volume.locate(3 * kMi).offset, 3 * kMi);
  EXPECT_EQ(volume.locate(3 * kMi).bytes, 5 * kMi);
  EXPECT_EQ(volume.files()[0].bytes, 8 * kMi);
}

TEST(Volume, FilesOfOneDirectoryAreToldApartInMessages) {
  const test::TemporaryDirectory a("/dev/shm"), b("/dev/shm");
  VolumeOptions options = in_memory({&a, &b}, 8 * kMi);
  {
    const Volume volume(options);
    EXPECT_EQ(volume.files()[1].name, "scratch file in " + b.path());
  }
  options.files_per_directory = 2;
  const Volume volume(options);
  EXPECT_EQ(volume.files()[0].name, "scratch file 1 of 2 in " + a.path());
  EXPECT_EQ(volume.files()[1].name, "scratch file 1 of 2 in " + b.path());
  EXPECT_EQ(volume.files()[2].name, "scratch file 2 of 2 in " + a.path());
  EXPECT_EQ(volume.files()[3].name, "scratch file 2 of 2 in " + b.path());
}

TEST(Volume, FilesAreReservedPrivateAndNameless) {
  const test::TemporaryDirectory directory;
  const Volume volume({.directories = {directory.path()}, .bytes = 3 * kMi, .owner = "run 7"});
  struct stat info {};
  ASSERT_EQ(fstat(volume.files()[0].fd, &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(info.st_nlink, 0u);
  EXPECT_EQ(info.st_size, static_cast<off_t>(3 * kMi));
  EXPECT_GE(info.st_blocks * 512, static_cast<off_t>(3 * kMi));
  std::ifstream lock(directory.path() + "/strata.lock");
  std::string holder;
  std::getline(lock, holder);
  EXPECT_NE(holder.find("pid " + std::to_string(getpid()) + " on "), std::string::npos) << holder;
  EXPECT_NE(holder.find("run 7"), std::string::npos) << holder;
}

// The name of the lock may be a user's file, or another name of one.
TEST(Volume, AFileThatIsNoLockIsNotTaken) {
  const test::TemporaryDirectory directory;
  const std::string lock = directory.path() + "/strata.lock";
  const auto refusal = [&] {
    try {
      const Volume volume({.directories = {directory.path()}, .bytes = kMi});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  std::ofstream(directory.path() + "/precious") << "pid of nobody, and much else";
  std::filesystem::create_hard_link(directory.path() + "/precious", lock);
  EXPECT_NE(refusal().find("was not made by strata"), std::string::npos) << refusal();
  std::filesystem::remove(lock);
  std::ofstream(lock) << "mine";
  EXPECT_NE(refusal().find("was not made by strata"), std::string::npos) << refusal();
  std::ifstream mine(lock), precious(directory.path() + "/precious");
  std::string text;
  EXPECT_EQ((std::getline(mine, text), text), "mine");
  EXPECT_EQ((std::getline(precious, text), text), "pid of nobody, and much else");
  std::filesystem::remove(lock);
  std::filesystem::create_symlink("precious", lock);
  EXPECT_NE(refusal().find("was not made by strata"), std::string::npos) << refusal();
  std::filesystem::remove(lock);
  std::filesystem::create_directory(lock);
  EXPECT_NE(refusal().find("was not made by strata"), std::string::npos) << refusal();
  std::filesystem::remove(lock);
  std::ofstream(lock) << "pid 1 on a machine that lost power\n";
  EXPECT_EQ(refusal(), "taken");
}

TEST(Volume, LeavesNothingBehind) {
  const test::TemporaryDirectory directory;
  { const Volume volume({.directories = {directory.path()}, .bytes = kMi}); }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Volume, ASecondRunIsRefusedAndTheHolderNamed) {
  const test::TemporaryDirectory directory;
  const Volume first({.directories = {directory.path()}, .bytes = kMi, .owner = "the first"});
  const auto [code, text] = refusal({.directories = {directory.path()}, .bytes = kMi});
  EXPECT_EQ(code, ErrorCode::kConfig);
  EXPECT_NE(text.find("in use by pid " + std::to_string(getpid())), std::string::npos) << text;
  EXPECT_NE(text.find("the first, which is this process"), std::string::npos) << text;
  EXPECT_EQ(text.find("wait for it"), std::string::npos) << text;
}

// The winner holds the directory until all have tried.
TEST(Volume, OfManyRunsThatStartAtOnceOneWins) {
  constexpr int kRuns = 20;
  const test::TemporaryDirectory directory;
  int gate[2];
  int tried[2];
  int release[2];
  ASSERT_EQ(pipe(gate) + pipe(tried) + pipe(release), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < kRuns; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      char byte = 0;
      close(gate[1]);
      close(release[1]);
      (void)!read(gate[0], &byte, 1);
      try {
        const Volume volume({.directories = {directory.path()}, .bytes = kMi});
        (void)!write(tried[1], "w", 1);
        (void)!read(release[0], &byte, 1);
      } catch (const Error&) {
        (void)!write(tried[1], "l", 1);
      }
      _exit(0);
    }
    children.push_back(child);
  }
  close(gate[1]);
  close(tried[1]);
  int winners = 0;
  char outcome = 0;
  for (int i = 0; i < kRuns; ++i) {
    ASSERT_EQ(read(tried[0], &outcome, 1), 1);
    winners += outcome == 'w';
  }
  EXPECT_EQ(winners, 1);
  close(release[1]);
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  for (const int end : {gate[0], tried[0], release[0]}) close(end);
}

TEST(Volume, TheLockOfADeadRunIsTakenOverAndItsSpaceIsFree) {
  const test::TemporaryDirectory directory;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const Volume volume({.directories = {directory.path()}, .bytes = kMi});
    (void)!write(ready[1], "x", 1);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(std::filesystem::exists(directory.path() + "/strata.lock"));
  { const Volume volume({.directories = {directory.path()}, .bytes = kMi}); }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  close(ready[0]);
  close(ready[1]);
}

TEST(Volume, TooLittleSpaceIsRefusedAtOnceNamingNeedAndFree) {
  const test::TemporaryDirectory directory;
  const std::clock_t start = std::clock();  // of this process: others may be busy
  const auto [code, text] =
      refusal({.directories = {directory.path()}, .bytes = uint64_t{1} << 49});
  EXPECT_EQ(code, ErrorCode::kDoesNotFit);
  EXPECT_NE(text.find("needs 512 TiB, free "), std::string::npos) << text;
  EXPECT_NE(text.find("missing "), std::string::npos) << text;
  EXPECT_LT(std::clock() - start, CLOCKS_PER_SEC);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Volume, DirectoriesOfOneDriveAreAddedUp) {
  const test::TemporaryDirectory a, b;
  const auto space = std::filesystem::space(a.path());
  const uint64_t bytes = space.free / 4096 * 4096 + (uint64_t{64} << 30);
  const auto [code, text] = refusal({.directories = {a.path(), b.path()}, .bytes = bytes});
  EXPECT_EQ(code, ErrorCode::kDoesNotFit);
  EXPECT_NE(text.find(a.path() + ", " + b.path()), std::string::npos) << text;
}

TEST(Volume, DirectoriesThatCannotWorkAreNamed) {
  const test::TemporaryDirectory directory;
  const std::string file = directory.path() + "/file";
  std::ofstream(file) << "x";
  for (const auto& [path, cause] :
       std::map<std::string, std::string>{{directory.path() + "/missing", "No such file"},
                                          {file, "Not a directory"},
                                          {"/proc", ""}}) {
    const auto [code, text] = refusal({.directories = {path}, .bytes = kMi});
    EXPECT_EQ(code, ErrorCode::kConfig) << path;
    EXPECT_NE(text.find(path), std::string::npos) << text;
    EXPECT_NE(text.find(cause), std::string::npos) << text;
  }
}

TEST(Volume, ADirectoryOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  const test::TemporaryDirectory directory("/dev/shm");
  ASSERT_EQ(chmod(directory.path().c_str(), 0755), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(65534) != 0) _exit(9);
    const auto [code, text] = refusal({.directories = {directory.path()}, .bytes = kMi});
    _exit(code == ErrorCode::kConfig && text.find("Permission denied") != std::string::npos ? 7
                                                                                            : 3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(Volume, TheSameDirectoryTwiceIsRefused) {
  const test::TemporaryDirectory directory;
  EXPECT_EQ(refusal({.directories = {directory.path(), directory.path()}, .bytes = kMi}).first,
            ErrorCode::kConfig);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Volume, MemoryIsNotADrive) {
  const test::TemporaryDirectory directory("/dev/shm");
  VolumeOptions options = in_memory({&directory}, kMi);
  options.allow_memory_filesystem = false;
  const auto [code, text] = refusal(options);
  EXPECT_EQ(code, ErrorCode::kConfig);
  EXPECT_NE(text.find("it is on tmpfs"), std::string::npos) << text;
}

TEST(Volume, OptionsThatCannotWorkAreRefused) {
  const test::TemporaryDirectory directory;
  const VolumeOptions good = {.directories = {directory.path()}, .bytes = kMi};
  const auto refused = [&](auto change) {
    VolumeOptions options = good;
    change(options);
    return refusal(options).first == ErrorCode::kConfig;
  };
  EXPECT_TRUE(refused([](VolumeOptions& o) { o.directories.clear(); }));
  EXPECT_TRUE(refused([](VolumeOptions& o) { o.bytes = 0; }));
  EXPECT_TRUE(refused([](VolumeOptions& o) { o.bytes = 4097; }));
  EXPECT_TRUE(refused([](VolumeOptions& o) { o.bytes = uint64_t{1} << 60; }));
  EXPECT_TRUE(refused([](VolumeOptions& o) { o.block_bytes = 6000; }));
  EXPECT_TRUE(refused([](VolumeOptions& o) { o.block_bytes = 2048; }));
  EXPECT_TRUE(refused([](VolumeOptions& o) { o.stripe_bytes = 65536 + 4096; }));
  EXPECT_TRUE(refused([](VolumeOptions& o) { o.weights = {1, 2}; }));
  EXPECT_TRUE(refused([](VolumeOptions& o) { o.weights = {-1}; }));
  EXPECT_TRUE(refused([](VolumeOptions& o) { o.lock_name = "../x"; }));
}

// Bytes that were read and never compared are a bug of ours: the program ends there.
TEST(VolumeDeathTest, BytesReadAndNotVerifiedEndTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const test::TemporaryDirectory directory("/dev/shm");
        Volume volume(in_memory({&directory}, kMi));
        volume.count_read(4096);
      },
      "bytes_read ==");
  const test::TemporaryDirectory directory("/dev/shm");
  Volume volume(in_memory({&directory}, kMi));
  volume.count_read(4096);
  volume.count_verified(4096);
}

TEST(Volume, ChecksumsKnowTagPlaceAndLength) {
  const test::TemporaryDirectory directory("/dev/shm");
  Volume volume(in_memory({&directory}, kMi));
  const AlignedBuffer data(131072, 1);
  volume.seal(0, data.data(), 131072, 5);
  volume.seal(131072, data.data(), 131072, 5);
  EXPECT_FALSE(volume.verify(0, data.data(), 131072, 5).found);
  EXPECT_FALSE(volume.verify(65536, data.data() + 65536, 65536, 5).found);
  EXPECT_TRUE(volume.verify(0, data.data(), 131072, 6).found);
  EXPECT_TRUE(volume.verify(131072 + 65536, data.data(), 65536, 5).found);
  EXPECT_TRUE(volume.verify(0, data.data(), 4096, 5).found);
  const Volume::Mismatch unwritten = volume.verify(262144, data.data(), 65536, 5);
  EXPECT_TRUE(unwritten.never_written);
  volume.forget(0, 131072);
  EXPECT_TRUE(volume.verify(0, data.data(), 131072, 5).never_written);
}

TEST(FreeBytes, TheFirstFileSystemThatIsFullEndsTheScratch) {
  const std::string here = testing::TempDir();
  const auto free = static_cast<double>(std::filesystem::space(here).available);
  const double noise = 0.02 * free;  // others use the drive too
  EXPECT_EQ(free_bytes_of({}), 0);
  EXPECT_NEAR(static_cast<double>(free_bytes_of({here})), free, noise);
  // Directories on one file system share its space, however the stripes are divided.
  const std::string there = here + "/free_bytes_test";
  std::filesystem::create_directory(there);
  EXPECT_NEAR(static_cast<double>(free_bytes_of({here, there})), free, noise);
  EXPECT_NEAR(static_cast<double>(free_bytes_of({here, there}, {3, 1})), free, noise);
  std::filesystem::remove(there);
  EXPECT_THROW(free_bytes_of({here, here + "/."}), Error) << "the same directory twice";
  EXPECT_THROW(free_bytes_of({here, "/proc/nonexistent"}), Error);
  EXPECT_THROW(free_bytes_of({"/proc"}), Error) << "nobody keeps files there";
  const std::string memory = "/dev/shm";
  if (!std::filesystem::exists(memory)) return;
  // Three quarters go to the first, so it is full at four thirds of its room.
  const auto other = static_cast<double>(std::filesystem::space(memory).available);
  EXPECT_NEAR(static_cast<double>(free_bytes_of({here, memory}, {3, 1})),
              std::min(free * 4 / 3, other * 4), 2 * noise);
}

}  // namespace
}  // namespace strata::io
