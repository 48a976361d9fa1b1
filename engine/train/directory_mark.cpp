// SPDX-License-Identifier: Apache-2.0
#include "engine/train/directory_mark.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "engine/base/clock.h"
#include "engine/checkpoint/checkpoint_file.h"
#include "engine/comm/message_auth.h"

namespace strata::train {
namespace {

namespace fs = std::filesystem;

constexpr double kLookAgainS = 0.05;

// The directory that many levels above the path.
fs::path above(const std::string& path, int levels) {
  fs::path at = fs::absolute(path).lexically_normal();
  if (!at.has_filename()) at = at.parent_path();
  for (int i = 0; i < levels; ++i) at = at.parent_path();
  return at;
}

std::string file_name(const std::string& nonce) {
  return ".strata-" + nonce.substr(0, 16);
}

}  // namespace

// The text has the levels and the nonce, which is in the file's name and in the file.
DirectoryMark::DirectoryMark(const std::string& path) {
  int levels = 0;
  std::error_code error;
  while (!fs::exists(above(path, levels), error)) ++levels;
  const std::string nonce = comm::random_text();
  file_ = above(path, levels) / file_name(nonce);
  text_ = fmt::format("{} {}", levels, nonce);
  checkpoint::write_small_file(file_, nonce);
}

DirectoryMark::~DirectoryMark() {
  std::error_code ignored;
  fs::remove(file_, ignored);
}

std::string why_unseen(const std::string& mark, const std::string& path, double deadline_s) {
  const size_t space = mark.find(' ');
  const fs::path directory = above(path, std::stoi(mark.substr(0, space)));
  const std::string nonce = mark.substr(space + 1);
  for (const double end_s = now_s() + deadline_s;;) {
    std::string found;
    std::ifstream(directory / file_name(nonce)) >> found;
    if (found == nonce) return "";
    if (now_s() >= end_s) break;
    std::this_thread::sleep_for(std::chrono::duration<double>(kLookAgainS));
  }
  std::error_code error;
  const bool exists = fs::exists(directory, error);
  return fmt::format(
      "{}: {}", directory.string(),
      exists ? "it is another directory, or this user may not read it" : "it does not exist there");
}

}  // namespace strata::train
