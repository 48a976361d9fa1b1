// SPDX-License-Identifier: Apache-2.0
#include "engine/data/data_key.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>

#include "engine/base/blocking_call.h"
#include "engine/base/error.h"
#include "engine/text/text_files.h"
#include "io/checksum.h"

namespace strata::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kEndBytes = 64 << 10;
constexpr int64_t kBetweenBytes = 4 << 10;
constexpr int64_t kBetweenCount = 64;
constexpr int64_t kTokenizerFileBytesMax = 256 << 20;  // that a tokenizer reads

class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : path_(path) {
    const BlockingCall call("open", path);
    file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file_ < 0 || fstat(file_, &info_) != 0) throw failure();
  }
  ~OpenFile() {
    if (file_ >= 0) close(file_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  const struct stat& info() const { return info_; }
  uint64_t add(uint64_t hash, int64_t offset, int64_t bytes) const {
    std::array<char, kEndBytes> chunk;
    const BlockingCall call("read", path_);
    const ssize_t got = pread(file_, chunk.data(), static_cast<size_t>(bytes), offset);
    if (got < 0) throw failure();
    return io::checksum_block(chunk.data(), static_cast<uint64_t>(got), hash,
                              static_cast<uint64_t>(offset));
  }

 private:
  Error failure() const {
    return system_error(ErrorCode::kConfig, fmt::format("read data: {}", path_), errno);
  }

  const std::string& path_;
  int file_ = -1;
  struct stat info_ {};
};

uint64_t sampled_checksum(const OpenFile& file, int64_t size) {
  uint64_t hash = file.add(1, 0, kEndBytes);
  for (int64_t k = 1; k <= kBetweenCount; ++k) {
    hash = file.add(hash, size / (kBetweenCount + 1) * k, kBetweenBytes);
  }
  return file.add(hash, std::max<int64_t>(0, size - kEndBytes), kEndBytes);
}

int64_t nanoseconds(const struct timespec& time) {
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

bool may_decide_tokens(const fs::directory_entry& entry) {
  constexpr std::array<std::string_view, 4> kExtensions = {".json", ".jinja", ".model", ".txt"};
  const std::string extension = entry.path().extension();
  std::error_code ignored;
  return std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end() &&
         entry.is_regular_file(ignored) &&
         static_cast<int64_t>(entry.file_size(ignored)) <= kTokenizerFileBytesMax;
}

}  // namespace

std::string key_of_files(const std::vector<std::string>& paths) {
  std::string key;
  for (const std::string& path : paths) {
    const OpenFile file(path);
    const int64_t bytes = file.info().st_size;
    key = digest_of(fmt::format("{} {} {} {} {:016x} {}", key, bytes,
                                nanoseconds(file.info().st_mtim), nanoseconds(file.info().st_ctim),
                                sampled_checksum(file, bytes),
                                fs::absolute(path).lexically_normal().string()));
  }
  return key;
}

std::string key_of_tokenizer(const std::string& model_directory) {
  std::vector<std::string> paths;
  std::error_code missing;
  for (const char* folder : {"", "additional_chat_templates"}) {
    const fs::path directory = fs::path(model_directory) / folder;
    for (const fs::directory_entry& entry : fs::directory_iterator(directory, missing)) {
      if (may_decide_tokens(entry)) paths.push_back(entry.path().string());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::string all;
  for (const std::string& path : paths) {
    const std::string name = fs::path(path).lexically_relative(model_directory).string();
    all += name + ' ' + digest_of(text::read_text_file(path, kTokenizerFileBytesMax)) + '\n';
  }
  return digest_of(all);
}

std::string digest_of(const std::string& text) {
  return fmt::format("{:016x}{:016x}", io::checksum_block(text.data(), text.size(), 1, 0),
                     io::checksum_block(text.data(), text.size(), 2, 0));
}

}  // namespace strata::data
