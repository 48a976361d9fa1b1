// SPDX-License-Identifier: Apache-2.0
#include "engine/model/model_directory.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/model/architecture.h"
#include "engine/model/family.h"
#include "kernels/backend.h"

namespace strata::model {
namespace {

namespace fs = std::filesystem;
using config::Json;

constexpr const char* kConfigName = "config.json";
constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr size_t kMismatchesShown = 8;
constexpr int64_t kIndexBytesMax = kHeaderBytesMax;
// Elements that are converted at a time, on the stack.
constexpr int64_t kTileElements = 16384;
// Tables that some old exports stored beside the weights; they follow from config.json.
constexpr std::string_view kDerivedSuffix = "rotary_emb.inv_freq";

[[noreturn]] void refuse(const std::string& object, const std::string& cause) {
  throw Error(ErrorCode::kConfig, "cannot open model: " + object + ": " + cause);
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Collects what does not match, for one message.
class Mismatches {
 public:
  void add(std::string text) {
    ++count_;
    if (shown_.size() < kMismatchesShown) shown_.push_back(std::move(text));
  }
  void throw_if_any(const std::string& path) const {
    if (count_ == 0) return;
    std::string list;
    for (const std::string& text : shown_) list += "\n  " + text;
    if (count_ > shown_.size()) list += fmt::format("\n  and {} more", count_ - shown_.size());
    refuse(path, fmt::format("{} {} not what config.json asks for (use a complete model directory "
                             "of this architecture):{}",
                             count_, count_ == 1 ? "tensor is" : "tensors are", list));
  }

 private:
  size_t count_ = 0;
  std::vector<std::string> shown_;
};

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t extent : shape)
    text += fmt::format("{}{}", text.size() > 1 ? ", " : "", extent);
  return text + "]";
}

// All of them at once, so that they are fetched at once.
void refuse_missing_shards(const std::string& directory, const std::set<std::string>& names) {
  std::string missing;
  for (const std::string& name : names) {
    const bool plain = name.find('/') == std::string::npos;  // others are refused as what they are
    if (plain && !is_there(fs::path(directory) / name)) missing += "\n  " + name;
  }
  if (missing.empty()) return;
  refuse(directory, fmt::format("files that {} names are missing (fetch the whole model):{}",
                                kIndexName, missing));
}

}  // namespace

std::string resolve_inside(const std::string& directory, const std::string& name) {
  const fs::path plain(name);
  if (name.empty() || name.find('\0') != std::string::npos || plain.filename() != plain ||
      name == "." || name == "..") {
    refuse(directory, "it names the file " + Json(name).dump() + ", which is no plain file name");
  }
  std::error_code error;
  const fs::path home = fs::canonical(directory, error);
  if (error) refuse(directory, error.message());
  const fs::path target = fs::canonical(home / plain, error);
  if (error) refuse((home / plain).string(), error.message());
  // The Hub cache keeps files in MODEL/blobs and links to them from MODEL/snapshots/REVISION.
  const fs::path blobs = home.parent_path().parent_path() / "blobs";
  const bool hub = home.parent_path().filename() == "snapshots" && target.parent_path() == blobs;
  if (target.parent_path() != home && !hub) {
    refuse((home / plain).string(), "it is a link out of the directory, to " + target.string() +
                                        " (copy the file into the directory)");
  }
  return target.string();
}

ModelDirectory ModelDirectory::open(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    refuse(path, is_there(path) ? "it is not a directory" : "there is no such directory");
  }
  if (!is_there(fs::path(path) / kConfigName)) {
    refuse(path, "there is no config.json in it (give a Hugging Face model directory)");
  }
  ModelDirectory result;
  result.path_ = path;
  const std::string config_path = resolve_inside(path, kConfigName);
  result.config_ = Json::read_file(config_path);
  result.spec_ =
      build_spec(read_architecture(result.config_, (fs::path(path) / kConfigName).string()));
  result.read_tensor_table();
  result.check_against_spec();
  return result;
}

void ModelDirectory::read_tensor_table() {
  const fs::path home(path_);
  if (is_there(home / kSingleName)) {
    add_file(kSingleName);
    return;
  }
  if (!is_there(home / kIndexName)) {
    const bool pickle =
        is_there(home / "pytorch_model.bin") || is_there(home / "pytorch_model.bin.index.json");
    refuse(path_,
           pickle ? "it has pytorch_model.bin only, which is never read (convert it to safetensors)"
                  : fmt::format("there is neither {} nor {} in it", kSingleName, kIndexName));
  }
  const std::string index_path = (home / kIndexName).string();
  const Json index = Json::read_file(resolve_inside(path_, kIndexName), {.bytes = kIndexBytesMax});
  const Json* map = index.find("weight_map");
  if (map == nullptr || !map->is_object()) refuse(index_path, "it has no weight_map object");
  std::set<std::string> names;
  for (const config::JsonMember& member : map->members()) {
    if (!member.value.is_string())
      refuse(index_path, "the file of " + member.name + " is no string");
    names.insert(member.value.string());
  }
  refuse_missing_shards(path_, names);
  for (const std::string& name : names) add_file(name);
  for (const config::JsonMember& member : map->members()) {
    const auto found = tensors_.find(member.name);
    const std::string& wanted = member.value.string();
    if (found == tensors_.end() ||
        files_[found->second.file].path() != resolve_inside(path_, wanted)) {
      refuse(index_path,
             fmt::format("it says that \"{}\" is in {}, where it is not", member.name, wanted));
    }
  }
}

void ModelDirectory::add_file(const std::string& name) {
  const std::string path = resolve_inside(path_, name);
  for (TensorEntry& entry : read_safetensors_header(path)) {
    const std::string tensor = entry.name;
    const auto [place, fresh] =
        tensors_.try_emplace(tensor, Location{files_.size(), std::move(entry)});
    if (!fresh) {
      refuse(path_, fmt::format("tensor \"{}\" is in {} and in {}", tensor, name,
                                fs::path(files_[place->second.file].path()).filename().string()));
    }
  }
  files_.push_back(File::open_to_read(path));
}

void ModelDirectory::check_against_spec() const {
  Mismatches mismatches;
  std::set<std::string> wanted;
  for (const Segment& segment : spec_.segments) {
    for (const Parameter& parameter : segment.parameters) {
      wanted.insert(parameter.name);
      const auto found = tensors_.find(parameter.name);
      if (found == tensors_.end()) {
        mismatches.add(
            fmt::format("\"{}\" {} is missing", parameter.name, shape_text(parameter.shape)));
        continue;
      }
      const TensorEntry& entry = found->second.entry;
      if (entry.shape != parameter.shape) {
        mismatches.add(fmt::format("\"{}\" has shape {}, not {}", parameter.name,
                                   shape_text(entry.shape), shape_text(parameter.shape)));
      } else if (!entry.dtype_known) {
        mismatches.add(fmt::format("\"{}\" has type {}, not F32, BF16 or F16", parameter.name,
                                   entry.dtype_name));
      }
    }
  }
  const Family* family = find_family_by_type(spec_.architecture.model_type);
  if (spec_.architecture.tied) wanted.insert(std::string(family->names->head) + ".weight");
  std::set<std::string> unexpected;
  for (const auto& [name, place] : tensors_) {
    if (wanted.count(name) == 0 && !name.ends_with(kDerivedSuffix)) unexpected.insert(name);
  }
  for (const std::string& name : unexpected) {
    mismatches.add(fmt::format("\"{}\" is in the files but not in the architecture", name));
  }
  mismatches.throw_if_any(path_);
}

const ModelDirectory::Location& ModelDirectory::location(const std::string& name) const {
  const auto found = tensors_.find(name);
  STRATA_CHECK(found != tensors_.end());
  return found->second;
}

void ModelDirectory::read_parameter(const Parameter& parameter, int64_t first, int64_t count,
                                    float* out) const {
  const Location& place = location(parameter.name);
  STRATA_CHECK(first >= 0 && count >= 0 && first <= place.entry.numel - count);
  const File& file = files_[place.file];
  const int64_t element_bytes = bytes_of(place.entry.dtype);
  const int64_t start = place.entry.offset + first * element_bytes;
  if (place.entry.dtype == DType::kF32) {
    file.read_at(start, out, count * element_bytes);
    return;
  }
  uint16_t tile[kTileElements];
  for (int64_t done = 0; done < count; done += kTileElements) {
    const int64_t now = std::min(count - done, kTileElements);
    file.read_at(start + done * element_bytes, tile, now * element_bytes);
    kernels::ref_backend().convert_in(
        {.dtype = place.entry.dtype, .count = now, .src = tile, .master = out + done});
  }
}

ParameterSource ModelDirectory::source(const Parameter& parameter) const {
  const Location& place = location(parameter.name);
  return {files_[place.file].path(), place.entry.offset, place.entry.bytes, place.entry.dtype};
}

}  // namespace strata::model
