// SPDX-License-Identifier: Apache-2.0
#include "engine/model/model_writer.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/fs.h>
#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/model/architecture.h"
#include "engine/model/model_directory.h"
#include "kernels/backend.h"

namespace strata::model {
namespace {

namespace fs = std::filesystem;
using config::Json;

constexpr int64_t kTileElements = 16384;
constexpr const char* kMarker = ".strata-export";  // says that a partial directory is ours
constexpr int64_t kOtherFileBytesMax = int64_t{1} << 30;

// Weights in any format, and what is written anew.
constexpr std::string_view kNotCopied[] = {".safetensors", ".index.json", ".bin",  ".pt",   ".pth",
                                           ".h5",          ".msgpack",    ".gguf", ".onnx", ".ot"};
// The one folder that tokenizers have.
constexpr const char* kTemplates = "additional_chat_templates";

// Runs `work`; what the file system refuses there becomes our error.
template <typename Work>
void guarded(const std::string& what, const Work& work) {
  try {
    work();
  } catch (const fs::filesystem_error& error) {
    throw system_error(ErrorCode::kIo, what, error.code().value());
  }
}

bool is_copied(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  if (!entry.is_regular_file() || name == "config.json" || name.starts_with(".")) return false;
  return std::none_of(std::begin(kNotCopied), std::end(kNotCopied),
                      [&](std::string_view suffix) { return name.ends_with(suffix); });
}

void copy_file(const std::string& from, const std::string& to) {
  const File source = File::open_to_read(from);
  const int64_t bytes = source.size();
  if (bytes > kOtherFileBytesMax) {
    throw Error(
        ErrorCode::kConfig,
        fmt::format(
            "cannot copy: {}: it has {}, more than a file beside the weights should (move it "
            "out of the model directory)",
            from, format_bytes(bytes)));
  }
  std::string contents(static_cast<size_t>(bytes), '\0');
  source.read_at(0, contents.data(), bytes);
  write_file(to, contents);
}

void copy_files(const std::string& from, const std::string& to) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    if (is_copied(entry)) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    copy_file(resolve_inside(from, name), (fs::path(to) / name).string());
  }
}

// Parameters in the order of the spec, cut into shards of at most `shard_bytes`.
std::vector<std::vector<TensorPlan>> plan_shards(const ModelSpec& spec,
                                                 const ModelWriterOptions& options) {
  std::vector<std::vector<TensorPlan>> shards(1);
  int64_t bytes = 0;
  for (const Segment& segment : spec.segments) {
    for (const Parameter& parameter : segment.parameters) {
      const int64_t more = parameter.numel * bytes_of(options.dtype);
      if (bytes > 0 && bytes + more > options.shard_bytes) {
        shards.emplace_back();
        bytes = 0;
      }
      shards.back().push_back({parameter.name, options.dtype, parameter.shape});
      bytes += more;
    }
  }
  // Large tensors first: they are whole pages as a rule, so the next one starts at a page.
  const auto numel = [](const TensorPlan& tensor) {
    int64_t count = 1;
    for (const int64_t extent : tensor.shape) count *= extent;
    return count;
  };
  for (auto& shard : shards) {
    std::stable_sort(shard.begin(), shard.end(),
                     [&](const TensorPlan& a, const TensorPlan& b) { return numel(a) > numel(b); });
  }
  return shards;
}

std::string without_trailing_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// Puts `partial` in the place of `path` in one step, also where a directory is there already.
void replace_directory(const std::string& partial, const std::string& path) {
  if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) {
    fs::remove_all(partial);
    return;
  }
  // The exchange failed: nothing is there, or the file system has no exchange.
  if (errno == EINVAL || errno == ENOSYS) fs::remove_all(path);
  if (::rename(partial.c_str(), path.c_str()) != 0) {
    throw system_error(ErrorCode::kIo, "cannot rename: " + partial + " to " + path, errno);
  }
}

}  // namespace

DType export_dtype(Recipe recipe) {
  return recipe == Recipe::kBf16 ? DType::kBF16 : DType::kF32;
}

namespace {

// What a killed export left is removed; anything else of that name is the user's.
void remove_own_partial(const std::string& partial) {
  if (!fs::exists(partial)) return;
  if (!fs::exists(partial + "/" + kMarker)) {
    throw Error(ErrorCode::kConfig, "cannot write model: " + partial +
                                        ": it is in the way and was not left by an export (move it "
                                        "away)");
  }
  fs::remove_all(partial);
}

}  // namespace

ModelWriter::ModelWriter(const ModelSpec& spec, const Json& config,
                         const ModelWriterOptions& options)
    : options_{without_trailing_slash(options.path), options.dtype, options.shard_bytes},
      partial_(options_.path + ".partial") {
  STRATA_CHECK(options_.dtype != DType::kF16 && options_.shard_bytes > 0);
  guarded("cannot write model: " + options_.path, [&] {
    const fs::path path(options_.path);
    const bool other =
        fs::exists(path) &&
        (!fs::is_directory(path) || (!fs::is_empty(path) && !fs::exists(path / "config.json")));
    if (other) {
      throw Error(ErrorCode::kConfig,
                  "cannot write model: " + options_.path +
                      ": it is there and is no model directory (give another path)");
    }
    const fs::path parent = parent_of(path);
    fs::create_directories(parent);
    require_free_space(parent.string(), spec.parameter_count() * bytes_of(options_.dtype) + kMiB,
                       "model");
    remove_own_partial(partial_);
    fs::create_directory(partial_);
    write_file(partial_ + "/" + kMarker, "an export that is under way\n");
  });
  try {
    create_files(spec);
    write_file(partial_ + "/config.json", with_dtype(config, options_.dtype).dump(2) + "\n");
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(partial_, ignored);
    throw;
  }
}

ModelWriter::~ModelWriter() {
  if (finished_) return;
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
}

void ModelWriter::create_files(const ModelSpec& spec) {
  const auto shards = plan_shards(spec, options_);
  if (shards.size() == 1) {
    create_shard("model.safetensors", shards[0]);
  } else {
    for (size_t i = 0; i < shards.size(); ++i) {
      create_shard(fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size()),
                   shards[i]);
    }
  }
  int64_t bytes = 0;
  for (const auto& [name, place] : tensors_) {
    bytes += place.entry.bytes;
    elements_ += place.entry.numel;
  }
  if (shards.size() > 1) write_index(bytes);
}

void ModelWriter::create_shard(const std::string& name, const std::vector<TensorPlan>& tensors) {
  SafetensorsPrefix prefix = make_safetensors_prefix(tensors);
  File file = File::create(partial_ + "/" + name);
  file.allocate(prefix.file_bytes);
  file.write_at(0, prefix.bytes.data(), static_cast<int64_t>(prefix.bytes.size()));
  for (TensorEntry& entry : prefix.entries) {
    tensors_.emplace(entry.name, Location{files_.size(), entry});
  }
  files_.push_back(std::move(file));
}

void ModelWriter::write_index(int64_t total_bytes) const {
  std::vector<std::string> names;
  for (const auto& [name, place] : tensors_) names.push_back(name);
  std::sort(names.begin(), names.end());
  Json map = Json::object();
  for (const std::string& name : names) {
    const std::string& path = files_[tensors_.at(name).file].path();
    map.members().push_back({name, Json(fs::path(path).filename().string())});
  }
  Json metadata = Json::object();
  metadata.set("total_size", total_bytes);
  Json index = Json::object();
  index.set("metadata", std::move(metadata));
  index.set("weight_map", std::move(map));
  write_file(partial_ + "/model.safetensors.index.json", index.dump(2) + "\n");
}

void ModelWriter::copy_other_files(const std::string& model_directory) {
  guarded("cannot copy files of: " + model_directory, [&] {
    copy_files(model_directory, partial_);
    const fs::path templates = fs::path(model_directory) / kTemplates;
    if (!fs::is_directory(templates)) return;
    const std::string to = partial_ + "/" + kTemplates;
    fs::create_directory(to);
    copy_files(templates.string(), to);
    sync_directory(to);
  });
}

void ModelWriter::add_file(const std::string& name, const std::string& contents) {
  STRATA_CHECK(fs::path(name).filename() == name);
  write_file(partial_ + "/" + name, contents);
}

void ModelWriter::write(const Parameter& parameter, int64_t first, int64_t count,
                        const float* values) {
  const auto found = tensors_.find(parameter.name);
  STRATA_CHECK(found != tensors_.end());
  const TensorEntry& entry = found->second.entry;
  STRATA_CHECK(first >= 0 && count >= 0 && first <= entry.numel - count);
  const File& file = files_[found->second.file];
  const int64_t element_bytes = bytes_of(entry.dtype);
  const int64_t start = entry.offset + first * element_bytes;
  if (entry.dtype == DType::kF32) {
    file.write_at(start, values, count * element_bytes);
  } else {
    uint16_t tile[kTileElements];
    for (int64_t done = 0; done < count; done += kTileElements) {
      const int64_t now = std::min(count - done, kTileElements);
      kernels::ref_backend().convert_out(
          {.dtype = entry.dtype, .count = now, .master = values + done, .dst = tile});
      file.write_at(start + done * element_bytes, tile, now * element_bytes);
    }
  }
  written_ += count;
}

void ModelWriter::finish() {
  STRATA_CHECK(!finished_ && written_ == elements_);
  for (const File& file : files_) file.sync();
  files_.clear();
  fs::remove(partial_ + "/" + kMarker);
  sync_directory(partial_);
  guarded("cannot rename: " + partial_, [&] { replace_directory(partial_, options_.path); });
  finished_ = true;
  sync_directory(parent_of(options_.path).string());
}

}  // namespace strata::model
