// SPDX-License-Identifier: Apache-2.0
// The scratch file is edited behind the volume's back, as bit rot and misdirected writes do: every
// one of 10^5 flipped bits and swapped blocks is detected when it is read, and named.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "aligned_buffer.h"
#include "engine/base/rng.h"
#include "io/channel.h"
#include "io/checksum.h"

namespace strata::io {
namespace {

constexpr uint64_t kBlock = 16384;
constexpr uint64_t kBlocks = 64;

// A volume with every block written, and the path by which its nameless file can be edited.
class Corruption : public testing::Test {
 protected:
  explicit Corruption(const std::string& parent = "/dev/shm")
      : directory_(parent),
        volume_({.directories = {directory_.path()},
                 .bytes = kBlocks * kBlock,
                 .block_bytes = kBlock,
                 .allow_memory_filesystem = true}),
        channel_(volume_, {.request_bytes = kBlock}),
        content_(kBlocks * kBlock, 1),
        memory_(kBlock) {
    const std::string path = "/proc/self/fd/" + std::to_string(volume_.files()[0].fd);
    fd_ = open(path.c_str(), O_RDWR);
    if (fd_ < 0) std::abort();
    Transfer transfer = transfer_of(Direction::kWrite, 0, content_, 1);
    channel_.submit(&transfer);
    if (!drain(channel_) || transfer.error) std::abort();
  }
  ~Corruption() override { close(fd_); }

  void put(uint64_t offset, const void* data, uint64_t bytes) const {
    if (pwrite(fd_, data, bytes, static_cast<off_t>(offset)) != static_cast<ssize_t>(bytes))
      std::abort();
  }

  test::TemporaryDirectory directory_;
  Volume volume_;
  Channel channel_;
  AlignedBuffer content_;
  AlignedBuffer memory_;
  int fd_ = -1;
};

TEST_F(Corruption, EveryFlippedBitIsDetectedAndNamed) {
  const Philox random(5);
  const std::string file = "wrong bytes read: scratch file in " + directory_.path() + " at offset ";
  for (uint64_t i = 0; i < 100000; ++i) {
    const auto draw = random.at(i);
    const uint64_t offset = (uint64_t{draw[0]} << 8 | draw[1] % 256) % (kBlocks * kBlock);
    const char flipped = static_cast<char>(content_.data()[offset] ^ (1 << draw[2] % 8));
    put(offset, &flipped, 1);
    const uint64_t block = offset / kBlock * kBlock;
    const std::string error = run_one(channel_, Direction::kRead, block, memory_, 1);
    ASSERT_EQ(error.rfind(file + std::to_string(block) + " ", 0), 0u)
        << "bit " << draw[2] % 8 << " of byte " << offset << ": " << error;
    put(offset, content_.data() + offset, 1);
  }
  EXPECT_EQ(run_one(channel_, Direction::kRead, 0, memory_, 1), "");
}

TEST_F(Corruption, EverySwapOfTwoBlocksIsDetectedInBoth) {
  const Philox random(6);
  for (uint64_t i = 0; i < 25000; ++i) {
    const auto draw = random.at(i);
    const uint64_t first = draw[0] % kBlocks;
    const uint64_t second = (first + 1 + draw[1] % (kBlocks - 1)) % kBlocks;
    put(first * kBlock, content_.data() + second * kBlock, kBlock);
    put(second * kBlock, content_.data() + first * kBlock, kBlock);
    ASSERT_NE(run_one(channel_, Direction::kRead, first * kBlock, memory_, 1), "")
        << first << second;
    ASSERT_NE(run_one(channel_, Direction::kRead, second * kBlock, memory_, 1), "")
        << first << second;
    put(first * kBlock, content_.data() + first * kBlock, kBlock);
    put(second * kBlock, content_.data() + second * kBlock, kBlock);
  }
  EXPECT_EQ(run_one(channel_, Direction::kRead, 0, memory_, 1), "");
}

// A stripe goes to each file by turns, so that blocks at one offset of two files are neighbours.
TEST(CorruptionOfTwoFiles, SwapsBetweenFilesAreDetectedInBoth) {
  constexpr uint64_t kStripe = 1 << 20;
  const test::TemporaryDirectory directory("/dev/shm");
  Volume volume({.directories = {directory.path()},
                 .files_per_directory = 2,
                 .bytes = 4 * kStripe,
                 .stripe_bytes = kStripe,
                 .block_bytes = kBlock,
                 .allow_memory_filesystem = true});
  Channel channel(volume, {.request_bytes = kBlock});
  const AlignedBuffer content(4 * kStripe, 1), memory(kBlock);
  ASSERT_EQ(run_one(channel, Direction::kWrite, 0, content, 1), "");
  const auto address_of = [](uint64_t file, uint64_t offset) {
    return (offset / kStripe * 2 + file) * kStripe + offset % kStripe;
  };
  const auto put = [&](uint64_t file, uint64_t offset, uint64_t address) {
    return pwrite(volume.files()[file].fd, content.data() + address, kBlock,
                  static_cast<off_t>(offset)) == static_cast<ssize_t>(kBlock);
  };
  const Philox random(8);
  for (uint64_t i = 0; i < 2000; ++i) {
    const uint64_t offset = random.u64(i, 0) % (2 * kStripe / kBlock) * kBlock;
    // At one offset, or anywhere.
    const uint64_t other = i % 2 == 0 ? offset : random.u64(i, 1) % (2 * kStripe / kBlock) * kBlock;
    const uint64_t first = address_of(0, offset), second = address_of(1, other);
    ASSERT_EQ(run_one(channel, Direction::kRead, first, memory, 1), "");
    ASSERT_TRUE(put(0, offset, second) && put(1, other, first));
    const std::string error = run_one(channel, Direction::kRead, first, memory, 1);
    ASSERT_NE(error.find("scratch file 1 of 2"), std::string::npos) << error;
    ASSERT_NE(run_one(channel, Direction::kRead, second, memory, 1), "");
    ASSERT_TRUE(put(0, offset, first) && put(1, other, second));
  }
}

TEST_F(Corruption, AnOlderGenerationInPlaceIsDetected) {
  const AlignedBuffer newer(kBlock, 9);
  for (uint64_t block = 0; block < kBlocks; ++block) {
    ASSERT_EQ(run_one(channel_, Direction::kWrite, block * kBlock, newer, 2), "");
    put(block * kBlock, content_.data() + block * kBlock, kBlock);
    ASSERT_NE(run_one(channel_, Direction::kRead, block * kBlock, memory_, 2), "");
    // Even under its own old tag: the table knows only the newest.
    ASSERT_NE(run_one(channel_, Direction::kRead, block * kBlock, memory_, 1), "");
  }
}

TEST_F(Corruption, ATornBlockIsDetectedAtEverySector) {
  const AlignedBuffer newer(kBlock, 9);
  for (uint64_t torn = 512; torn < kBlock; torn += 512) {
    ASSERT_EQ(run_one(channel_, Direction::kWrite, 0, newer, 2), "");
    put(torn, content_.data() + torn, kBlock - torn);
    ASSERT_NE(run_one(channel_, Direction::kRead, 0, memory_, 2), "") << torn;
  }
}

TEST_F(Corruption, AFileCutShortIsAnError) {
  ASSERT_EQ(ftruncate(fd_, 8 * kBlock), 0);
  EXPECT_EQ(run_one(channel_, Direction::kRead, 7 * kBlock, memory_, 1), "");
  const std::string error = run_one(channel_, Direction::kRead, 8 * kBlock, memory_, 1);
  EXPECT_NE(error.find("two tries moved nothing"), std::string::npos) << error;
}

// The same through O_DIRECT on the drive, where the page cache cannot stand in for it.
class CorruptionOnTheDrive : public Corruption {
 protected:
  CorruptionOnTheDrive() : Corruption(STRATA_BINARY_DIR) {}
};

TEST_F(CorruptionOnTheDrive, FlipsAndSwapsAreDetected) {
  const Philox random(7);
  for (uint64_t i = 0; i < 200; ++i) {
    const uint64_t offset = random.u64(i) % (kBlocks * kBlock);
    const char flipped = static_cast<char>(content_.data()[offset] ^ 1);
    put(offset, &flipped, 1);
    ASSERT_EQ(fdatasync(fd_), 0);
    ASSERT_NE(run_one(channel_, Direction::kRead, offset / kBlock * kBlock, memory_, 1), "")
        << offset;
    put(offset, content_.data() + offset, 1);
  }
  for (uint64_t first = 0; first < kBlocks; ++first) {
    const uint64_t second = (first + 1 + random.u64(1000 + first) % (kBlocks - 1)) % kBlocks;
    put(first * kBlock, content_.data() + second * kBlock, kBlock);
    put(second * kBlock, content_.data() + first * kBlock, kBlock);
    ASSERT_EQ(fdatasync(fd_), 0);
    for (const uint64_t block : {first, second}) {
      const std::string error = run_one(channel_, Direction::kRead, block * kBlock, memory_, 1);
      ASSERT_EQ(error.rfind("wrong bytes read: scratch file in " + directory_.path(), 0), 0u)
          << first << " with " << second << ": " << error;
      put(block * kBlock, content_.data() + block * kBlock, kBlock);
    }
    ASSERT_EQ(fdatasync(fd_), 0);
    ASSERT_EQ(run_one(channel_, Direction::kRead, first * kBlock, memory_, 1), "");
  }
  EXPECT_TRUE(volume_.files()[0].direct);
  EXPECT_NE(fcntl(volume_.files()[0].fd, F_GETFL) & O_DIRECT, 0) << "it says so and is not";
}

// The checksum itself, over every bit of one block and many swaps, without files.
TEST(Checksum, EveryBitOfABlockChangesIt) {
  const AlignedBuffer block(4096, 3);
  const uint64_t before = checksum_block(block.data(), 4096, 1, 0);
  for (uint64_t bit = 0; bit < 8 * 4096; ++bit) {
    char& byte = block.data()[bit / 8];
    byte = static_cast<char>(byte ^ (1 << bit % 8));
    ASSERT_NE(checksum_block(block.data(), 4096, 1, 0), before) << bit;
    byte = static_cast<char>(byte ^ (1 << bit % 8));
  }
  EXPECT_EQ(checksum_block(block.data(), 4096, 1, 0), before);
  EXPECT_NE(checksum_block(block.data(), 4096, 2, 0), before);
  EXPECT_NE(checksum_block(block.data(), 4096, 1, 4096), before);
}

}  // namespace
}  // namespace strata::io
