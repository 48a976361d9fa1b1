// SPDX-License-Identifier: Apache-2.0
// Files with options come from the disk or through a pipe: all that a writer gives is read, however
// it comes in pieces, and a pipe without a writer is refused instead of waited for.
#include "engine/config/config_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>
#include <vector>

#include "engine/base/error.h"

namespace strata::config {
namespace {

class ConfigFile : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "config_file_test_" + std::to_string(getpid());
    std::remove(path_.c_str());
  }
  void TearDown() override { std::remove(path_.c_str()); }

  void make_pipe() const { ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0); }

  std::string error() const {
    try {
      read_config_file(path_, 1000);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConfig);
      return error.what();
    }
    return "no error";
  }

  std::string path_;
};

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// Writes the pieces with pauses between, as a slow program does.
void write_pieces(const std::string& path, const std::vector<std::string>& pieces, int pause_ms) {
  const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(file, 0);
  for (const std::string& piece : pieces) {
    std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
    EXPECT_EQ(write(file, piece.data(), piece.size()), static_cast<ssize_t>(piece.size()));
  }
  close(file);
}

TEST_F(ConfigFile, IsReadWhole) {
  std::ofstream(path_) << std::string(1000, 'x');
  EXPECT_EQ(read_config_file(path_, 1000), std::string(1000, 'x'));
  std::ofstream(path_) << "";
  EXPECT_EQ(read_config_file(path_), "");
}

TEST_F(ConfigFile, WhatCannotBeReadIsSaid) {
  EXPECT_HAS(error(), "cannot open " + path_ + ": No such file");
  std::ofstream(path_) << std::string(1001, 'x');
  EXPECT_HAS(error(), "it has more than 1000 B (is it the right file?)");
  path_ = testing::TempDir();
  EXPECT_HAS(error(), "Is a directory");
  path_ = "/dev/zero";
  EXPECT_HAS(error(), "it has more than 1000 B");
  path_ = "";
  EXPECT_HAS(error(), "cannot open");
}

TEST_F(ConfigFile, APipeIsReadToItsEndHoweverItComes) {
  make_pipe();
  std::thread writer(write_pieces, path_, std::vector<std::string>{"lr = ", "1\n", "eps"}, 100);
  EXPECT_EQ(read_config_file(path_), "lr = 1\neps");
  writer.join();
}

// Longer than the wait for somebody to write.
TEST_F(ConfigFile, AWriterMayThinkForAWhile) {
  make_pipe();
  std::thread writer(write_pieces, path_, std::vector<std::string>{"late"}, 2500);
  EXPECT_EQ(read_config_file(path_), "late");
  writer.join();
}

TEST_F(ConfigFile, APipeWithoutAWriterIsRefusedSoon) {
  make_pipe();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_HAS(error(), "cannot read " + path_ + ": no program wrote to this pipe for 2 s (is the");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST_F(ConfigFile, APipeOutOfWhichNothingCameIsRefused) {
  make_pipe();
  std::thread writer(write_pieces, path_, std::vector<std::string>{""}, 100);
  EXPECT_HAS(error(), "nothing came out of the pipe (did the program that fills it fail?)");
  writer.join();
}

}  // namespace
}  // namespace strata::config
