// SPDX-License-Identifier: Apache-2.0
#include "engine/model_files/model_writer.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/fs.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "engine/base/blocking_call.h"
#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/model/architecture.h"
#include "engine/model/quantization.h"
#include "engine/model_files/model_directory.h"
#include "engine/model_files/other_files.h"
#include "engine/model_files/path_errors.h"
#include "engine/model_files/transfer_buffer.h"
#include "engine/model_files/transpose.h"
#include "kernels/backend.h"

namespace strata::model {
namespace {

namespace fs = std::filesystem;
using config::Json;

constexpr int64_t kWrittenElements = int64_t{64} << 10;
constexpr int64_t kStepElements = int64_t{1} << 20;
constexpr int64_t kTurnedElements = int64_t{256} << 10;
// Marks the directory of an unfinished export; removed last.
constexpr const char* kMarker = ".strata-export";
// The name of config.json until everything else is written, so that a partial directory does not
// look like a model.
constexpr const char* kUnnamedConfig = ".config.json";

// The disk space of a directory to write: the weights and the other files.
int64_t bytes_on_disk(const std::vector<ShardPlan>& shards, const ModelDirectory* like) {
  constexpr int64_t kConfigAndIndex = kMiB;
  const int64_t others = like != nullptr ? bytes_of_other_files(like->path()) : 0;
  return bytes_of_files(shards) + others + kConfigAndIndex;
}

// Throws when a master was rounded to infinity, because training took it beyond the range of F16.
void require_finite(const char* halves, int64_t count, const std::string& tensor) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t half = 0;
    std::memcpy(&half, halves + 2 * i, sizeof half);
    if ((half & 0x7c00) != 0x7c00) continue;
    throw Error(ErrorCode::kNumeric,
                "cannot write model: tensor \"" + tensor +
                    "\": a weight is beyond 65504, the largest of F16 (lower --lr, or give "
                    "--export-dtype fp32)");
  }
}

void convert_out(const TensorEntry& entry, const ConstWeightPlanes& planes, int64_t count,
                 char* to) {
  kernels::ref_backend().convert_out({.dtype = entry.dtype,
                                      .weights = planes.weights,
                                      .count = count,
                                      .master = planes.master,
                                      .hi = planes.hi,
                                      .lo = planes.lo,
                                      .dst = to});
  if (entry.dtype == DType::kF16) require_finite(to, count, entry.name);
}

std::string without_trailing_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

Error rename_error(const std::string& from, const std::string& to, int error) {
  return system_error(ErrorCode::kIo, "cannot rename: " + from + " to " + to, error);
}

void rename_path(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw rename_error(from, to, errno);
}

std::string aside_of(const std::string& partial) {
  return partial + ".replaced";
}

// Replaces `path` on a file system that cannot exchange names. Restores the old directory when the
// new one cannot be renamed.
void replace_by_two_renames(const std::string& partial, const std::string& path) {
  const std::string aside = aside_of(partial);
  rename_path(path, aside);
  try {
    rename_path(partial, path);
  } catch (...) {
    (void)::rename(aside.c_str(), path.c_str());
    throw;
  }
  fs::remove_all(aside);
}

// Renames `partial` to `path` in one step, also when a directory already has that name.
void replace_directory(const std::string& partial, const std::string& path) {
  if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) {
    fs::remove_all(partial);
    return;
  }
  const int error = errno;
  if (!fs::exists(path)) return rename_path(partial, path);
  if (error != EINVAL && error != ENOSYS) throw rename_error(partial, path, error);
  replace_by_two_renames(partial, path);
}

struct Totals {
  int64_t bytes = 0;
  int64_t elements = 0;
};

// The metadata of the source's index with new totals, since the scales of FP8 weights are gone.
Json index_metadata(const ModelDirectory* like, const Totals& totals) {
  const bool has_some = like != nullptr && like->index_metadata().is_object();
  Json metadata = has_some ? like->index_metadata() : Json::object();
  constexpr const char* kParameters = "total_parameters";
  if (metadata.find(kParameters) != nullptr) metadata.set(kParameters, totals.elements);
  metadata.set("total_size", totals.bytes);
  return metadata;
}

}  // namespace

int64_t export_bytes(const ModelDirectory& source, std::optional<DType> dtype) {
  return bytes_on_disk(plan_shards_like(source, dtype), &source);
}

void require_may_replace(const std::string& path, bool force) {
  const BlockingCall call("look at", path);
  if (!is_there(path)) return;
  std::error_code unreadable;
  const bool is_empty = fs::is_directory(path) && fs::is_empty(path, unreadable);
  if (!is_empty && !is_there(path + "/config.json")) {
    throw Error(ErrorCode::kConfig, "cannot write model: " + path +
                                        ": it exists and is not a model directory (give another "
                                        "path)");
  }
  require_no_folder(path, kTemplatesFolder, "model");  // what is replaced is removed
  if (force) return;
  throw Error(ErrorCode::kConfig,
              "out: " + path + ": exists already (choose another, or add --force)");
}

namespace {

std::string partial_of(const std::string& path) {
  return without_trailing_slash(path) + ".partial";
}

bool is_marked(const std::string& directory) {
  return fs::exists(directory + "/" + kMarker);
}

// Removes what a killed export left: the directory that it wrote, or the model that it had just
// replaced. Restores a model that the export had set aside without replacing it. Anything else with
// these names belongs to the user.
void clear_leftovers(const std::string& partial, const std::string& path) {
  const std::string aside = aside_of(partial);
  const bool replaced = is_marked(path);
  const bool empty = !fs::exists(partial) || (fs::is_directory(partial) && fs::is_empty(partial));
  if (!replaced && !empty && !is_marked(partial)) {
    throw Error(ErrorCode::kConfig, "cannot write model: " + partial +
                                        ": it exists and was not left by an export (move it "
                                        "away)");
  }
  if (fs::exists(aside) && !fs::exists(path)) rename_path(aside, path);
  if (replaced) fs::remove_all(aside);
  fs::remove_all(partial);
  fs::remove(path + "/" + kMarker);
}

}  // namespace

std::string leftover_of_export(const std::string& path) {
  const std::string partial = partial_of(path);
  const BlockingCall call("look at", partial);
  std::error_code ignored;
  return fs::exists(partial + "/" + kMarker, ignored) ? partial : "";
}

ModelWriter::ModelWriter(const ModelSpec& spec, const Json& config,
                         const ModelWriterOptions& options)
    : options_{without_trailing_slash(options.path), options.dtype, options.shard_bytes,
               options.like, options.buffer_bytes.value_or(transfer_buffer_bytes(spec))},
      partial_(partial_of(options_.path)) {
  STRATA_CHECK(options_.shard_bytes > 0);
  const std::vector<ShardPlan> shards =
      options_.like != nullptr
          ? plan_shards_like(*options_.like, options_.dtype)
          : plan_shards(spec, options_.dtype.value_or(DType::kF32), options_.shard_bytes);
  guarded("cannot write model: " + options_.path, [&] {
    const BlockingCall call("create", partial_);
    require_may_replace(options_.path, true);
    const std::string parent = parent_of(options_.path).string();
    clear_leftovers(partial_, options_.path);
    require_free_space(nearest_directory(parent), bytes_on_disk(shards, options_.like), "model");
    fs::create_directories(parent);
    fs::create_directory(partial_);
  });
  try {
    const Json written = with_dtype(without_quantization(config), main_dtype(shards));
    write_file(partial_ + "/" + kMarker, "");
    write_file(partial_ + "/" + kUnnamedConfig, written.dump(2) + "\n");
    create_files(shards);
    if (*options_.buffer_bytes > 0) open_direct(spec);
    if (options_.like != nullptr) copy_kept(*options_.like);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(partial_, ignored);
    throw;
  }
}

ModelWriter::~ModelWriter() {
  direct_.reset();
  if (finished_) return;
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
}

void ModelWriter::create_files(const std::vector<ShardPlan>& shards) {
  for (const ShardPlan& shard : shards) create_shard(shard);
  int64_t bytes = 0;
  for (const auto& [name, place] : tensors_) {
    bytes += place.entry.bytes;
    elements_ += place.entry.numel;
  }
  if (shards.size() > 1 || shards[0].file != kSingleFileName) write_index(bytes);
}

void ModelWriter::create_shard(const ShardPlan& shard) {
  SafetensorsPrefix prefix = make_safetensors_prefix(shard.tensors);
  File file = File::create(partial_ + "/" + shard.file);
  file.allocate(prefix.file_bytes);
  file.write_at(0, prefix.bytes.data(), static_cast<int64_t>(prefix.bytes.size()));
  for (TensorEntry& entry : prefix.entries) {
    tensors_.emplace(entry.name, Location{files_.size(), entry});
  }
  files_.push_back(std::move(file));
}

// Files with transposed tensors are written through the page cache, in small pieces that the kernel
// joins.
void ModelWriter::open_direct(const ModelSpec& spec) {
  std::set<const File*> pieces;
  for (const Segment& segment : spec.segments) {
    for (const Parameter& parameter : segment.parameters) {
      if (parameter.stored.transposed)
        pieces.insert(&files_[tensors_.at(parameter.stored.tensor).file]);
    }
  }
  std::vector<const File*> files;
  for (const File& file : files_) {
    if (!pieces.contains(&file)) files.push_back(&file);
  }
  direct_ = DirectWriter::open(files, *options_.buffer_bytes);
}

void ModelWriter::copy_kept(const ModelDirectory& from) {
  std::vector<char> part(static_cast<size_t>(kStepElements));
  for (const std::string& name : from.kept()) {
    const Location& to = tensors_.at(name);
    const File& file = files_[to.file];
    const ModelDirectory::StoredRange source = from.stored_range(name);
    for (int64_t done = 0; done < source.bytes; done += kStepElements) {
      const int64_t now = std::min(source.bytes - done, kStepElements);
      const int64_t at = to.entry.offset + done;
      source.file->read_at(source.offset + done, part.data(), now);
      if (direct_ != nullptr && direct_->takes(file)) {
        direct_->write(file, at, part.data(), now);
      } else {
        file.write_at(at, part.data(), now);
        behind_.written(file, at, now);
      }
    }
    written_ += to.entry.numel;
  }
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
  Json index = Json::object();
  index.set("metadata", index_metadata(options_.like, {total_bytes, elements_}));
  index.set("weight_map", std::move(map));
  write_file(partial_ + "/model.safetensors.index.json", index.dump(2) + "\n");
}

void ModelWriter::copy_other_files(const std::string& model_directory) {
  model::copy_other_files(model_directory, partial_);
}

void ModelWriter::add_file(const std::string& name, const std::string& contents) {
  STRATA_CHECK(fs::path(name).filename() == name);
  write_file(partial_ + "/" + name, contents);
}

// A transposed parameter is written from masters, so it needs lo.
bool ModelWriter::wants_masters(const Parameter& parameter, DType weights) const {
  const TensorEntry& entry = tensors_.at(parameter.stored.tensor).entry;
  return entry.dtype != weights || parameter.stored.transposed;
}

void ModelWriter::write(const Parameter& parameter, int64_t first, int64_t count,
                        const ConstWeightPlanes& planes) {
  const auto found = tensors_.find(parameter.stored.tensor);
  STRATA_CHECK(found != tensors_.end());
  STRATA_CHECK(first >= 0 && count >= 0 && first <= parameter.numel - count);
  STRATA_CHECK(has_whole_rows(parameter));
  if (count == 0) return;
  if (parameter.stored.transposed) {
    write_transposed(found->second, parameter, first, count, planes);
  } else {
    write_range(found->second, stored_index(parameter, first), count, planes, Flush::kBehind);
  }
  written_ += count;
}

// Converts elements directly into the blocks that are written, except for an element that crosses
// two blocks.
void ModelWriter::write_direct(const Location& place, int64_t first, int64_t count,
                               const ConstWeightPlanes& planes) {
  const TensorEntry& entry = place.entry;
  const File& file = files_[place.file];
  const int64_t width = bytes_of(entry.dtype);
  const std::lock_guard lock(direct_mu_);
  for (int64_t done = 0; done < count;) {
    const int64_t offset = entry.offset + (first + done) * width;
    const DirectWriter::Room room =
        direct_->room(file, offset, std::min(count - done, kWrittenElements) * width);
    const int64_t now = std::max<int64_t>(1, room.bytes / width);
    char one[4];
    char* to = room.bytes < width ? one : reinterpret_cast<char*>(room.data);
    convert_out(entry, planes.from(done), now, to);
    if (to == one) {
      direct_->write(file, offset, one, width);
    } else {
      direct_->written(now * width);
    }
    done += now;
  }
}

// Writes elements that are contiguous in the file.
void ModelWriter::write_range(const Location& place, int64_t first, int64_t count,
                              const ConstWeightPlanes& planes, Flush flush) {
  const TensorEntry& entry = place.entry;
  STRATA_CHECK(first <= entry.numel - count);
  const File& file = files_[place.file];
  const int64_t element_bytes = bytes_of(entry.dtype);
  const int64_t start = entry.offset + first * element_bytes;
  if (flush == Flush::kBehind && direct_ != nullptr && direct_->takes(file)) {
    return write_direct(place, first, count, planes);
  }
  if (entry.dtype == DType::kF32 && planes.master != nullptr) {
    for (int64_t done = 0; done < count; done += kStepElements) {
      const int64_t now = std::min(count - done, kStepElements);
      file.write_at(start + done * element_bytes, planes.master + done, now * element_bytes);
      if (flush == Flush::kBehind) {
        behind_.written(file, start + done * element_bytes, now * element_bytes);
      }
    }
    return;
  }
  alignas(64) char tile[kWrittenElements * 4];
  for (int64_t done = 0; done < count; done += kWrittenElements) {
    const int64_t now = std::min(count - done, kWrittenElements);
    convert_out(entry, planes.from(done), now, tile);
    file.write_at(start + done * element_bytes, tile, now * element_bytes);
    if (flush == Flush::kBehind) {
      behind_.written(file, start + done * element_bytes, now * element_bytes);
    }
  }
}

void ModelWriter::write_transposed(const Location& place, const Parameter& parameter, int64_t first,
                                   int64_t count, const ConstWeightPlanes& planes) {
  const Storage& stored = parameter.stored;
  std::vector<float> straight(static_cast<size_t>(parameter.shape[1]));
  std::vector<float> turned(static_cast<size_t>(kTurnedElements));
  for (const Rectangle& whole : rectangles_of(parameter, first, count)) {
    for (const Rectangle& part : cut(whole, kTurnedElements)) {
      for (int64_t row = 0; row < part.rows(); ++row) {
        const int64_t element = (part.row + row) * parameter.shape[1] + part.input;
        const ConstWeightPlanes from = planes.from(element - first);
        kernels::ref_backend().convert_out({.dtype = DType::kF32,
                                            .weights = from.weights,
                                            .count = part.inputs(),
                                            .master = from.master,
                                            .hi = from.hi,
                                            .lo = from.lo,
                                            .dst = straight.data()});
        for (int64_t input = 0; input < part.inputs(); ++input) {
          turned[static_cast<size_t>(input * part.rows() + row)] =
              straight[static_cast<size_t>(input)];
        }
      }
      for (int64_t input = 0; input < part.inputs(); ++input) {
        const int64_t at = (part.input + input) * stored.shape[1] + stored.first + part.row;
        // Other pieces will be written between these; the kernel joins them.
        write_range(place, at, part.rows(), {.master = turned.data() + input * part.rows()},
                    Flush::kByKernel);
      }
    }
  }
}

void ModelWriter::finish() {
  STRATA_CHECK(!finished_ && written_ == elements_);
  if (direct_ != nullptr) direct_->flush();
  direct_.reset();
  behind_.drain();
  for (const File& file : files_) file.sync();
  files_.clear();
  guarded("cannot rename: " + partial_, [&] {
    const BlockingCall call("rename", partial_);
    fs::rename(partial_ + "/" + kUnnamedConfig, partial_ + "/config.json");
    sync_directory(partial_);
    replace_directory(partial_, options_.path);
  });
  finished_ = true;
  ::unlink((options_.path + "/" + kMarker).c_str());  // a marker that remains does no harm
  sync_directory(parent_of(options_.path).string());
}

}  // namespace strata::model
