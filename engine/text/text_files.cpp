// SPDX-License-Identifier: Apache-2.0
#include "engine/text/text_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <set>

#include "engine/base/blocking_call.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/json.h"
#include "engine/text/text_unicode.h"

namespace strata::text {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlockBytes = 16 << 20;

struct OtherKind {
  std::string_view extension;
  const char* why;
};

constexpr const char* kAsRecords =
    "CSV and Parquet are not supported (examples/to_jsonl.py of the source writes them as .jsonl)";
constexpr const char* kAsText = "documents are not supported (extract their text into a .txt file)";
constexpr const char* kWeights =
    "it holds weights, not data (give the directory that it is in as --model)";
constexpr const char* kUnpack = "compressed files are not supported (unpack it first)";

constexpr OtherKind kOtherKinds[] = {
    {".csv", kAsRecords},   {".tsv", kAsRecords}, {".parquet", kAsRecords},
    {".arrow", kAsRecords}, {".gz", kUnpack},     {".zst", kUnpack},
    {".xz", kUnpack},       {".zip", kUnpack},    {".pdf", kAsText},
    {".docx", kAsText},     {".epub", kAsText},   {".safetensors", kWeights},
    {".gguf", kWeights},    {".pt", kWeights},    {".pth", kWeights},
};

// Whether the extension, in upper or lower case, is one of data.
bool looks_like_data(const fs::path& file) {
  std::string extension = file.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return is_text(extension) || extension == ".jsonl" || extension == ".bin" ||
         why_not_read(extension) != nullptr;
}

constexpr const char* kRunFile = "run.json";  // of the directory of a run

// Throws for the directory of a run, and names the data of that run.
void refuse_run(const std::string& directory) {
  std::error_code ignored;
  const std::string about = directory + "/" + kRunFile;
  if (!fs::exists(about, ignored)) return;
  std::string data;
  try {
    const config::Json run = config::Json::read_file(about);
    const config::Json* options = run.find("options");
    if (options == nullptr) return;  // a file of somebody else
    const config::Json* paths = options->find("data");
    const bool is_list = paths != nullptr && paths->is_array();
    for (const config::Json& path : is_list ? paths->items() : config::Json::Array()) {
      if (path.is_string()) data += (data.empty() ? "" : ",") + path.string();
    }
  } catch (const Error&) {
    return;
  }
  throw Error(ErrorCode::kConfig,
              fmt::format("open data: {}: it is the directory of a run, which holds no data (give "
                          "files or directories of text or records{})",
                          directory, data.empty() ? "" : ", such as those of the run: " + data));
}

// What is found below a directory.
struct Found {
  std::vector<fs::path> files;
  std::set<fs::path> links;    // to directories that are not looked into yet
  std::set<fs::path> visited;  // directories, without links in their paths
};

bool is_first_visit(const fs::path& directory, Found& found) {
  std::error_code failure;  // which looking into it meets again
  const fs::path path = fs::canonical(directory, failure);
  return failure || found.visited.insert(path).second;
}

// Adds what is below a directory, except for run directories and those that were visited.
std::error_code look_into(const fs::path& directory, Found& found) {
  std::error_code failure;
  std::error_code ignored;  // from a broken link
  for (fs::recursive_directory_iterator at(directory, failure), end; !failure && at != end;
       at.increment(failure)) {
    if (at->is_regular_file(ignored)) found.files.push_back(at->path());
    if (!at->is_directory(ignored)) continue;
    const bool is_run = fs::exists(at->path() / kRunFile, ignored);
    if (at->is_symlink(ignored)) {
      if (!is_run) found.links.insert(at->path());
    } else if (is_run || !is_first_visit(at->path(), found)) {
      at.disable_recursion_pending();
    }
  }
  return failure;
}

// All files below a directory, sorted by path, except for files of run directories. Links to
// directories are followed, but no directory is visited twice: by its own path where it has one
// below the directory, or else by the first link to it.
std::vector<fs::path> files_below(const std::string& directory) {
  const BlockingCall call("list", directory);
  refuse_run(directory);
  Found found = {.files = {}, .links = {directory}, .visited = {}};
  while (!found.links.empty()) {
    const fs::path next = found.links.extract(found.links.begin()).value();
    if (!is_first_visit(next, found)) continue;
    if (const std::error_code failure = look_into(next, found)) {
      throw system_error(ErrorCode::kConfig, fmt::format("list data: {}", next.string()),
                         failure.value());
    }
  }
  std::sort(found.files.begin(), found.files.end());
  return std::move(found.files);
}

// The last place where a text may be cut, or its end.
size_t last_cut(std::string_view text) {
  for (size_t at = text.size(); at-- > 1;) {
    const auto next = static_cast<unsigned char>(text[at]);
    if (text[at - 1] == '\n' && next > ' ' && next < 0x80) return at;
  }
  // There is no such line: cut before the last character.
  return std::max<size_t>(utf8_start(text, text.size() - 1), 1);
}

void check_utf8(const std::string& path, std::string_view text, int64_t offset_bytes) {
  const size_t invalid = find_invalid_utf8(text);
  if (invalid == std::string_view::npos) return;
  throw Error(
      ErrorCode::kConfig,
      fmt::format("read text: {}: byte {} (0x{:02x}) is not UTF-8 (convert the file to UTF-8; a "
                  "file of tokens is named .bin)",
                  path, offset_bytes + static_cast<int64_t>(invalid),
                  static_cast<unsigned char>(text[invalid])));
}

}  // namespace

// O_NONBLOCK, because opening a pipe must not wait for a writer. It has no effect on regular files.
FileReader::FileReader(const std::string& path) : path_(path) {
  const BlockingCall call("open", path_);
  file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info {};
  if (file_ < 0 || fstat(file_, &info) != 0) {
    const int cause = errno;
    if (file_ >= 0) close(file_);
    throw system_error(ErrorCode::kConfig, fmt::format("open data: {}", path), cause);
  }
  if (!S_ISREG(info.st_mode)) {
    close(file_);
    throw Error(ErrorCode::kConfig,
                fmt::format("open data: {}: it is not a regular file (give a file)", path));
  }
  bytes_ = info.st_size;
  char head[kUtf8Mark.size()] = {};
  const bool has_mark = pread(file_, head, sizeof head, 0) == sizeof head &&
                        std::string_view(head, sizeof head) == kUtf8Mark;
  if (has_mark) begin_bytes_ = lseek(file_, sizeof head, SEEK_SET);
}

FileReader::~FileReader() {
  close(file_);
}

size_t FileReader::read(char* buffer, size_t count) {
  size_t done = 0;
  while (done < count) {
    const ssize_t got = [&] {
      const BlockingCall call("read", path_);
      return ::read(file_, buffer + done, count - done);
    }();
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw system_error(ErrorCode::kIo, fmt::format("read data: {}", path_), errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

bool LineReader::next() {
  constexpr size_t kReadBytes = 1 << 20;
  if (!has_end_) return false;
  begin_ = next_;
  end_ = buffer_.find('\n', begin_);
  while (end_ == std::string::npos) {
    buffer_.erase(0, begin_);
    begin_ = 0;
    const size_t kept = buffer_.size();
    check_(number_ + 1, static_cast<int64_t>(kept));
    if (kept + kReadBytes > buffer_.capacity()) buffer_.reserve(kept + kept / 4 + kReadBytes);
    buffer_.resize(kept + kReadBytes);
    buffer_.resize(kept + reader_.read(buffer_.data() + kept, kReadBytes));
    end_ = buffer_.find('\n', kept);
    if (buffer_.size() < kept + kReadBytes && end_ == std::string::npos) break;
  }
  has_end_ = end_ != std::string::npos;
  if (!has_end_) end_ = buffer_.size();
  next_ = end_ + (has_end_ ? 1 : 0);
  if (next_ == begin_) return false;
  ++number_;
  end_bytes_ += static_cast<int64_t>(next_ - begin_);
  check_(number_, static_cast<int64_t>(end_ - begin_));
  return true;
}

bool is_text(std::string_view extension) {
  return extension == ".txt" || extension == ".md";
}

const char* why_not_read(std::string_view extension) {
  for (const OtherKind& other : kOtherKinds) {
    if (extension == other.extension) return other.why;
  }
  return nullptr;
}

std::vector<std::string> text_files_below(const std::string& directory) {
  std::vector<std::string> files;
  for (const fs::path& file : files_below(directory)) {
    if (is_text(file.extension().string())) files.push_back(file.string());
  }
  return files;
}

std::vector<std::string> data_files_below(const std::string& directory) {
  std::vector<std::string> files;
  for (const fs::path& file : files_below(directory)) {
    const fs::path extension = file.extension();
    if (extension == ".jsonl" || extension == ".json") files.push_back(file.string());
  }
  return files;
}

char first_character(const std::string& path) {
  FileReader reader(path);
  char head[4096];
  const std::string_view text(head, reader.read(head, sizeof head));
  const size_t at = text.find_first_not_of(" \t\r\n");
  return at == std::string_view::npos ? '\0' : text[at];
}

std::vector<std::string> left_out_of(const std::string& directory,
                                     const std::vector<std::string>& read) {
  const std::set<std::string_view> is_read(read.begin(), read.end());
  std::vector<std::string> left_out;
  for (const fs::path& file : files_below(directory)) {
    if (looks_like_data(file) && !is_read.contains(file.string())) {
      left_out.push_back(file.string());
    }
  }
  return left_out;
}

void for_each_text_block(const std::string& path,
                         const std::function<void(std::string_view)>& use) {
  FileReader reader(path);
  std::string block;
  block.reserve(kBlockBytes + kBlockBytes / 16);  // with room for the rest after a cut
  int64_t offset_bytes = reader.begin_bytes();
  bool is_last = false;
  while (!is_last) {
    const size_t kept = block.size();
    block.resize(kept + kBlockBytes);
    block.resize(kept + reader.read(block.data() + kept, kBlockBytes));
    is_last = block.size() < kept + kBlockBytes;
    const size_t cut = is_last ? block.size() : last_cut(block);
    check_utf8(path, std::string_view(block).substr(0, cut), offset_bytes);
    if (cut > 0) use(std::string_view(block).substr(0, cut));
    block.erase(0, cut);
    offset_bytes += static_cast<int64_t>(cut);
  }
}

std::string read_text_file(const std::string& path, int64_t bytes_max) {
  FileReader reader(path);
  if (reader.bytes() > bytes_max) {
    throw Error(ErrorCode::kConfig,
                fmt::format("read file: {}: it has {}, more than {} (is it the right file?)", path,
                            format_bytes(reader.bytes()), format_bytes(bytes_max)));
  }
  std::string text(static_cast<size_t>(reader.bytes()), '\0');
  text.resize(reader.read(text.data(), text.size()));
  return text;
}

void write_text_file(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".new";
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) throw system_error(ErrorCode::kIo, fmt::format("write file: {}", temporary), errno);
  size_t done = 0;
  int cause = 0;
  while (done < text.size() && cause == 0) {
    const ssize_t put = ::write(file, text.data() + done, text.size() - done);
    if (put >= 0)
      done += static_cast<size_t>(put);
    else if (errno != EINTR)
      cause = errno;
  }
  if (cause == 0 && fsync(file) != 0) cause = errno;
  if (close(file) != 0 && cause == 0) cause = errno;
  if (cause == 0 && rename(temporary.c_str(), path.c_str()) != 0) cause = errno;
  if (cause == 0) return;
  unlink(temporary.c_str());
  throw system_error(ErrorCode::kIo, fmt::format("write file: {}", path), cause);
}

}  // namespace strata::text
