// SPDX-License-Identifier: Apache-2.0
#include "engine/model_files/other_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "engine/base/blocking_call.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/model_files/file.h"
#include "engine/model_files/model_directory.h"
#include "engine/model_files/path_errors.h"

namespace strata::model {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBytesMax = int64_t{1} << 30;
constexpr int64_t kCopiedBytes = kMiB;  // of one read and write
// Weights in any format, and files that an export writes itself.
constexpr std::string_view kNotCopied[] = {".safetensors", ".index.json", ".bin",  ".pt",   ".pth",
                                           ".h5",          ".msgpack",    ".gguf", ".onnx", ".ot"};

bool is_copied(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  if (!entry.is_regular_file() || name == "config.json" || name.starts_with(".")) return false;
  return std::none_of(std::begin(kNotCopied), std::end(kNotCopied),
                      [&](std::string_view suffix) { return name.ends_with(suffix); });
}

std::vector<std::string> names_in(const std::string& directory) {
  const BlockingCall call("list", directory);
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    if (is_copied(entry)) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

File open_file(const std::string& directory, const std::string& name) {
  File file = File::open_to_read(resolve_inside(directory, name));
  if (file.size() <= kBytesMax) return file;
  throw Error(
      ErrorCode::kConfig,
      fmt::format("cannot copy: {}: it has {}, a file beside the weights at most {} (move it "
                  "out of the model directory)",
                  file.path(), format_bytes(file.size()), format_bytes(kBytesMax)));
}

void copy_file(const File& source, const std::string& to) {
  const File target = File::create(to);
  const int64_t bytes = source.size();
  std::string part(static_cast<size_t>(std::min(bytes, kCopiedBytes)), '\0');
  for (int64_t at = 0; at < bytes; at += kCopiedBytes) {
    const int64_t count = std::min(bytes - at, kCopiedBytes);
    source.read_at(at, part.data(), count);
    target.write_at(at, part.data(), count);
    target.start_writing(at, count);
  }
  target.sync();
}

void copy_files(const std::string& from, const std::string& to) {
  for (const std::string& name : names_in(from)) {
    copy_file(open_file(from, name), (fs::path(to) / name).string());
  }
}

// The directory, and its folder of templates if it has one.
std::vector<std::string> folders_of(const std::string& model_directory) {
  const std::string templates = (fs::path(model_directory) / kTemplatesFolder).string();
  const BlockingCall call("look for", templates);
  if (!fs::is_directory(templates)) return {model_directory};
  return {model_directory, templates};
}

void check_listed(const std::string& directory, const std::string& model_directory) {
  const BlockingCall call("list", directory);
  if (!fs::is_directory(directory)) return;
  const std::vector<std::string> copied = names_in(model_directory);
  const auto is_of_model = [&](const fs::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    if (entry.is_symlink()) return false;
    if (entry.is_directory()) return name == kTemplatesFolder;
    const bool weights =
        name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
    return weights || name == "config.json" || name == "chat_template.jinja" ||
           name.starts_with(".strata-") || std::ranges::binary_search(copied, name);
  };
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    if (is_of_model(entry)) continue;
    throw Error(ErrorCode::kConfig,
                fmt::format("cannot write model: {}: replacing it would delete {} in it, which is "
                            "no part of the model (move that away, or give another path)",
                            directory, entry.path().filename().string()));
  }
}

}  // namespace

void require_only_model_files(const std::string& directory, const std::string& model_directory) {
  guarded("cannot look at the files of: " + directory,
          [&] { check_listed(directory, model_directory); });
}

void check_other_files(const std::string& model_directory) {
  guarded("cannot look at the files of: " + model_directory, [&] {
    for (const std::string& folder : folders_of(model_directory)) {
      for (const std::string& name : names_in(folder)) (void)open_file(folder, name);
    }
  });
}

int64_t bytes_of_other_files(const std::string& model_directory) {
  return guarded("cannot look at the files of: " + model_directory, [&] {
    int64_t bytes = 0;
    for (const std::string& folder : folders_of(model_directory)) {
      for (const std::string& name : names_in(folder)) bytes += open_file(folder, name).size();
    }
    return bytes;
  });
}

void copy_other_files(const std::string& model_directory, const std::string& to) {
  guarded("cannot copy files of: " + model_directory, [&] {
    copy_files(model_directory, to);
    const std::vector<std::string> folders = folders_of(model_directory);
    if (folders.size() == 1) return;
    const std::string folder = to + "/" + kTemplatesFolder;
    fs::create_directory(folder);
    copy_files(folders.back(), folder);
    sync_directory(folder);
  });
}

}  // namespace strata::model
