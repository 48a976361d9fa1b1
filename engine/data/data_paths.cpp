// SPDX-License-Identifier: Apache-2.0
#include "engine/data/data_paths.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "engine/base/blocking_call.h"
#include "engine/text/text_files.h"

namespace strata::data {
namespace {

namespace fs = std::filesystem;

enum class Split : uint8_t { kNone, kTrain, kHeldOut, kTest };

struct SplitName {
  std::string_view name;
  Split split;
};
constexpr std::array<SplitName, 8> kSplits = {{{"train", Split::kTrain},
                                               {"training", Split::kTrain},
                                               {"valid", Split::kHeldOut},
                                               {"validation", Split::kHeldOut},
                                               {"val", Split::kHeldOut},
                                               {"dev", Split::kHeldOut},
                                               {"eval", Split::kHeldOut},
                                               {"test", Split::kTest}}};

// What the first word of a name such as "train-00000-of-00002.jsonl" says.
Split split_of_name(const std::string& name) {
  const std::string word = name.substr(0, name.find_first_of("-_. "));
  for (const SplitName& each : kSplits) {
    if (each.name == word) return each.split;
  }
  return Split::kNone;
}

// The nearest folder that is named for a purpose decides where the file is not.
Split split_of(const fs::path& file, const fs::path& directory) {
  Split split = split_of_name(file.filename());
  for (fs::path at = file.parent_path(); split == Split::kNone && at != directory;
       at = at.parent_path()) {
    split = split_of_name(at.filename());
  }
  return split;
}

bool is_readme(const std::string& path) {
  return fs::path(path).stem() == "README";
}

// A .json file in a directory is often about the data, so that only an array counts.
bool holds_records(const fs::path& file) {
  if (file.extension() == ".jsonl") return true;
  return file.extension() == ".json" && text::first_character(file) == '[';
}

// The directory's files of records, or with `at_top` only those that lie in it and not below.
std::vector<fs::path> record_files(const std::string& directory, bool at_top) {
  std::vector<fs::path> files;
  for (const std::string& name : text::data_files_below(directory)) {
    const fs::path file(name);
    if (at_top && file.parent_path() != fs::path(directory)) continue;
    if (holds_records(file)) files.push_back(file);
  }
  return files;
}

void add_record_files(DataItem& item, bool at_top) {
  std::vector<std::string> unnamed;
  for (const fs::path& file : record_files(item.path, at_top)) {
    const Split split = split_of(file, item.path);
    if (split == Split::kTrain) item.files.push_back(file.string());
    if (split == Split::kHeldOut) item.held_out.push_back(file.string());
    if (split == Split::kNone) unnamed.push_back(file.string());
  }
  if (item.files.empty()) item.files = std::move(unnamed);
}

void add_directory(DataItem& item, bool evaluates) {
  const fs::path directory(item.path);
  if (::access(item.path.c_str(), R_OK | X_OK) != 0) {
    throw bad_data(item.path,
                   "this user may not look into the directory (chmod u+rx, or give another)");
  }
  if (fs::is_regular_file(directory / "train.jsonl")) return add_record_files(item, true);
  const std::vector<std::string> texts = text::text_files_below(item.path);
  if (!std::all_of(texts.begin(), texts.end(), is_readme)) {
    item.files = texts;
    return;
  }
  add_record_files(item, false);
  if (item.files.empty()) item.files = texts;
  if (!item.files.empty() || (evaluates && !item.held_out.empty())) return;
  throw bad_data(item.path,
                 item.held_out.empty()
                     ? "the directory has no .txt or .md file, and no .jsonl file to train on "
                       "(give other files by their own path)"
                     : "the directory has only files for validation (name one train.jsonl)");
}

// Splits "a.jsonl:0.7". A path that exists as it is has no weight.
DataItem parse_item(const std::string& given) {
  DataItem item = {given, 0, {}, {}};
  const size_t colon = given.rfind(':');
  std::error_code ignored;
  if (colon == std::string::npos || fs::exists(given, ignored)) return item;
  const char* begin = given.data() + colon + 1;
  const char* last = given.data() + given.size();
  double weight = 0;
  const auto [end, error] = std::from_chars(begin, last, weight);
  if (error != std::errc() || end != last) {
    if (!fs::exists(given.substr(0, colon), ignored)) return item;
    throw bad_data(given, fmt::format("the weight {} is not a number (give a share such as 0.7)",
                                      given.substr(colon + 1)));
  }
  if (!std::isfinite(weight) || weight <= 0) {
    throw bad_data(given, fmt::format("the weight {} is not above 0 (give a share such as 0.5)",
                                      given.substr(colon + 1)));
  }
  item.path = given.substr(0, colon);
  item.weight = weight;
  return item;
}

// Whether it could be "owner/name" rather than a path.
bool is_like_hub_name(const std::string& path) {
  const size_t slash = path.find('/');
  std::error_code ignored;
  return slash != std::string::npos && slash > 0 && slash == path.rfind('/') && path[0] != '.' &&
         !fs::exists(path.substr(0, slash), ignored);
}

void add_files(DataItem& item, bool evaluates) {
  const BlockingCall call("list", item.path);
  std::error_code failure;
  const fs::file_status status = fs::status(item.path, failure);
  if (failure == std::errc::no_such_file_or_directory && is_like_hub_name(item.path)) {
    throw bad_data(item.path,
                   "there is no such file or directory, and nothing is downloaded (get a "
                   "dataset of a hub, and give the file that examples/to_jsonl.py makes of it)");
  }
  if (failure) {
    throw bad_data(item.path, failure.message() + " (give a file or directory that can be read)");
  }
  if (fs::is_directory(status)) return add_directory(item, evaluates);
  if (!fs::is_regular_file(status)) {
    throw bad_data(item.path, "it is neither a file nor a directory (give one of them)");
  }
  (void)text::FileReader(item.path);
  item.files = {item.path};
}

}  // namespace

Error bad_data(const std::string& path, const std::string& cause) {
  return Error(ErrorCode::kConfig, fmt::format("open data: {}: {}", path, cause));
}

std::vector<DataItem> data_items(const std::vector<std::string>& given, bool evaluates) {
  std::vector<DataItem> items;
  for (const std::string& one : given) {
    items.push_back(parse_item(one));
    add_files(items.back(), evaluates);
  }
  const auto has_weight = [](const DataItem& item) { return item.weight > 0; };
  const auto without = std::find_if_not(items.begin(), items.end(), has_weight);
  if (without != items.end() && std::any_of(items.begin(), items.end(), has_weight)) {
    throw bad_data(without->path,
                   "it has no weight, but other data has one (give each PATH:WEIGHT, or none)");
  }
  return items;
}

std::vector<std::string> files_left_out(const DataItem& item) {
  std::vector<std::string> read = item.files;
  read.insert(read.end(), item.held_out.begin(), item.held_out.end());
  std::vector<std::string> left_out = text::left_out_of(item.path, read);
  std::erase_if(left_out, is_readme);  // it is about the data
  return left_out;
}

int64_t bytes_of_files(const std::vector<std::string>& files) {
  int64_t bytes = 0;
  for (const std::string& file : files) bytes += text::FileReader(file).bytes();
  return bytes;
}

int64_t bytes_of(const std::vector<std::string>& given) {
  int64_t bytes = 0;
  for (const DataItem& item : data_items(given)) {
    bytes += bytes_of_files(item.files) + bytes_of_files(item.held_out);
  }
  return bytes;
}

bool are_token_files(const std::vector<std::string>& given) {
  return std::all_of(given.begin(), given.end(), [](const std::string& one) {
    return one.ends_with(".bin") || one.find(".bin:") != std::string::npos;
  });
}

}  // namespace strata::data
