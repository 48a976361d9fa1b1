// SPDX-License-Identifier: Apache-2.0
#include "engine/model_files/model_directory.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/plural.h"
#include "engine/base/units.h"
#include "engine/model/architecture.h"
#include "engine/model/config_fields.h"
#include "engine/model/stored_names.h"
#include "engine/model/text_model.h"
#include "engine/model_files/model_path.h"
#include "engine/model_files/shard_index.h"

namespace strata::model {
namespace {

namespace fs = std::filesystem;
using config::Json;

constexpr const char* kConfigName = "config.json";
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr size_t kMismatchesShown = 8;
constexpr int64_t kIndexBytesMax = kHeaderBytesMax;
// Tables that some old exports store beside the weights, although config.json determines them.
constexpr std::string_view kDerivedSuffixes[] = {"rotary_emb.inv_freq", ".attn.bias",
                                                 ".attn.masked_bias"};
constexpr const char* kDropouts[] = {"attention_dropout", "attn_pdrop", "embd_pdrop",
                                     "resid_pdrop"};

bool is_derived(const std::string& name) {
  return std::any_of(std::begin(kDerivedSuffixes), std::end(kDerivedSuffixes),
                     [&](std::string_view suffix) { return name.ends_with(suffix); });
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
    refuse_model(path,
                 fmt::format("{} {} not what config.json asks for (use a complete model directory "
                             "of this architecture):{}",
                             counted(static_cast<int64_t>(count_), "tensor"),
                             count_ == 1 ? "is" : "are", list));
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

// Reports all missing files at once, so that the user can fetch them at once.
void refuse_missing_shards(const std::string& directory, const std::vector<std::string>& names) {
  std::string missing;
  for (const std::string& name : names) {
    if (!is_there(fs::path(directory) / name)) missing += "\n  " + name;
  }
  if (missing.empty()) return;
  refuse_model(directory, fmt::format("files that {} names are missing (fetch the whole model):{}",
                                      kIndexName, missing));
}

// Whether `target` is in the blobs of the Hub cache that `home` belongs to. The cache keeps files
// in MODEL/blobs and links to them from MODEL/snapshots/REVISION and its folders.
bool is_in_hub_cache(const fs::path& home, const fs::path& target) {
  const fs::path above = home.parent_path();
  for (const fs::path& snapshots : {above, above.parent_path()}) {
    if (snapshots.filename() != "snapshots") continue;
    if (target.parent_path() == snapshots.parent_path() / "blobs") return true;
  }
  return false;
}

}  // namespace

std::string resolve_inside(const std::string& directory, const std::string& name) {
  if (!is_plain_file_name(name)) {
    refuse_model(directory, "it names the file " + Json(name).dump() +
                                ", which is not a plain file name (fetch the model again)");
  }
  std::error_code error;
  const fs::path home = fs::canonical(directory, error);
  if (error) refuse_model(directory, error.message());
  const fs::path target = fs::canonical(home / name, error);
  if (error) refuse_model((home / name).string(), error.message());
  if (target.parent_path() != home && !is_in_hub_cache(home, target)) {
    refuse_model((home / name).string(), "it is a link out of the directory, to " +
                                             target.string() +
                                             " (copy the file into the directory)");
  }
  return target.string();
}

ModelDirectory ModelDirectory::open(const std::string& path) {
  require_model_directory(path);
  refuse_broken_links(path);
  ModelDirectory result;
  result.path_ = path;
  const std::string config_path = resolve_inside(path, kConfigName);
  result.config_ = Json::read_file(config_path, {}, kFetchAgain);
  const std::string source = (fs::path(path) / kConfigName).string();
  result.spec_ = build_spec(read_architecture(result.config_, source));
  const TextModel text = find_text_model(result.config_, source);
  result.fp8_ = read_quantization(result.config_, source);
  result.read_tensor_table();
  const bool nested = text.members != &result.config_;
  const std::string head = adopt_stored_names(result.spec_, nested, [&](const std::string& name) {
    return result.tensors_.contains(name);
  });
  if (text.of != nullptr) result.keep_parts(text.of->parts);
  result.check_against_spec(head);
  return result;
}

void ModelDirectory::read_tensor_table() {
  const fs::path home(path_);
  if (is_there(home / kSingleFileName)) {
    add_file(kSingleFileName);
    return;
  }
  if (!is_there(home / kIndexName)) refuse_without_weights(path_);
  const std::string index_path = (home / kIndexName).string();
  const Json index =
      Json::read_file(resolve_inside(path_, kIndexName), {.bytes = kIndexBytesMax}, kFetchAgain);
  const ShardIndex shards = read_shard_index(index, index_path);
  if (const Json* metadata = index.find("metadata")) index_metadata_ = *metadata;
  refuse_missing_shards(path_, shards.files);
  for (const std::string& name : shards.files) add_file(name);
  for (const auto& [tensor, wanted] : shards.tensors) {
    const auto found = tensors_.find(tensor);
    if (found == tensors_.end() ||
        files_[found->second.file].path() != resolve_inside(path_, wanted)) {
      refuse_model(
          index_path,
          fmt::format("it says that \"{}\" is in {}, but it is not (fetch the whole model again)",
                      tensor, wanted));
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
      refuse_model(
          path_,
          fmt::format("tensor \"{}\" is in {} and in {} (fetch the whole model again)", tensor,
                      name, fs::path(files_[place->second.file].path()).filename().string()));
    }
  }
  files_.push_back(File::open_to_read(path));
  file_names_.push_back(name);
}

// Describes what is wrong with a tensor; empty when nothing is wrong.
std::string ModelDirectory::mismatch_of(const std::string& name,
                                        const std::vector<int64_t>& shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return fmt::format("\"{}\" {} is missing", name, shape_text(shape));
  }
  const TensorEntry& entry = found->second.entry;
  if (entry.shape != shape) {
    return fmt::format("\"{}\" has shape {}, not {}", name, shape_text(entry.shape),
                       shape_text(shape));
  }
  const bool fp8 = entry.dtype == DType::kF8E4M3;
  if (!entry.dtype_known || (fp8 && (!fp8_ || shape.size() != 2))) {
    return fmt::format("\"{}\" has type {}, not F32, BF16 or F16{}", name, entry.dtype_name,
                       fp8 && !fp8_ ? ", and config.json has no quantization_config" : "");
  }
  if (!fp8) return "";
  const std::vector<int64_t> blocks = {ceil_div(shape[0], fp8_->rows),
                                       ceil_div(shape[1], fp8_->cols)};
  const auto scales = tensors_.find(name + kScaleSuffix);
  if (scales == tensors_.end()) {
    return fmt::format("\"{}{}\" {} is missing", name, kScaleSuffix, shape_text(blocks));
  }
  const TensorEntry& scale = scales->second.entry;
  if (scale.shape == blocks && scale.dtype_known && scale.dtype != DType::kF8E4M3) return "";
  return fmt::format("\"{}{}\" is {} {}, not {} F32 or BF16", name, kScaleSuffix,
                     shape_text(scale.shape), scale.dtype_name, shape_text(blocks));
}

// Whether two tensors have the same bytes at sampled places.
bool ModelDirectory::equal_in_places(const Location& one, const Location& other) const {
  if (one.entry.shape != other.entry.shape || one.entry.dtype != other.entry.dtype) return false;
  constexpr int64_t kPlaces = 64;
  const int64_t bytes = std::min<int64_t>(one.entry.bytes, 4096);
  std::string here(static_cast<size_t>(bytes), '\0');
  std::string there = here;
  for (int64_t place = 0; place < kPlaces; ++place) {
    const int64_t at = (one.entry.bytes - bytes) / (kPlaces - 1) * place;
    files_[one.file].read_at(one.entry.offset + at, here.data(), bytes);
    files_[other.file].read_at(other.entry.offset + at, there.data(), bytes);
    if (here != there) return false;
  }
  return true;
}

// Notes the tensors outside of the text model.
void ModelDirectory::keep_parts(std::span<const std::string_view> prefixes) {
  for (const auto& [name, place] : tensors_) {
    const auto begins = [&name = name](std::string_view prefix) {
      return name.starts_with(prefix);
    };
    if (std::any_of(prefixes.begin(), prefixes.end(), begins)) kept_.push_back(name);
  }
  std::sort(kept_.begin(), kept_.end());
}

// Refuses a quantization_config beside weights that are not quantized, since Transformers would
// quantize them.
void ModelDirectory::require_fp8_weights() const {
  const TensorEntry* other = nullptr;
  for (const Segment& segment : spec_.segments) {
    if (segment.layer < 0) continue;  // embedding and head are not quantized
    for (const Parameter& parameter : segment.parameters) {
      const auto found = tensors_.find(parameter.stored.tensor);
      if (found == tensors_.end() || parameter.shape.size() != 2) continue;
      if (found->second.entry.dtype == DType::kF8E4M3) return;
      if (other == nullptr) other = &found->second.entry;
    }
  }
  if (other == nullptr) return;  // all are missing: reported elsewhere
  refuse_model(path_,
               fmt::format("quantization_config in config.json says that weights are FP8, and none "
                           "is: \"{}\" is {} (take quantization_config out if they were "
                           "converted, or fetch the FP8 weights)",
                           other->name, other->dtype_name));
}

void ModelDirectory::check_against_spec(const std::string& head) {
  Mismatches mismatches;
  std::set<std::string> wanted;
  for (const Segment& segment : spec_.segments) {
    for (const Parameter& parameter : segment.parameters) {
      const Storage& stored = parameter.stored;
      if (!wanted.insert(stored.tensor).second) continue;
      if (fp8_) wanted.insert(stored.tensor + kScaleSuffix);
      const std::string wrong = mismatch_of(stored.tensor, stored.shape);
      if (!wrong.empty()) mismatches.add(wrong);
    }
  }
  if (fp8_) require_fp8_weights();
  for (const std::string& name : kept_) {
    wanted.insert(name);
    const TensorEntry& entry = location(name).entry;
    if (entry.dtype_known && entry.dtype != DType::kF8E4M3) continue;
    mismatches.add(fmt::format("\"{}\" has type {}, only F32, BF16 and F16 are copied", name,
                               entry.dtype_name));
  }
  if (spec_.architecture.tied && tensors_.contains(head)) {
    wanted.insert(head);
    second_embedding_ = head;
    const std::string& embedding = spec_.segments.front().parameters.front().stored.tensor;
    if (tensors_.contains(embedding) && !equal_in_places(location(head), location(embedding))) {
      mismatches.add(
          fmt::format("\"{}\" is not equal to \"{}\", though tie_word_embeddings is "
                      "true: set it to false, or leave the tensor out",
                      head, embedding));
    }
  }
  std::set<std::string> unexpected;
  for (const auto& [name, place] : tensors_) {
    if (wanted.count(name) == 0 && !is_derived(name)) unexpected.insert(name);
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

StoredTensor ModelDirectory::stored(const std::string& name) const {
  const Location& place = location(name);
  StoredTensor tensor{.file = &files_[place.file], .entry = &place.entry};
  if (place.entry.dtype == DType::kF8E4M3) {
    const Location& scales = location(name + kScaleSuffix);
    tensor.scale_file = &files_[scales.file];
    tensor.scales = &scales.entry;
    tensor.blocks = *fp8_;
  }
  return tensor;
}

void ModelDirectory::read_parameter(const Parameter& parameter, int64_t first, int64_t count,
                                    const WeightPlanes& planes, StoredBytes* ahead) const {
  StoredTensor tensor = stored(parameter.stored.tensor);
  tensor.ahead = ahead;
  read_elements(tensor, parameter, first, count, planes);
}

ModelDirectory::StoredRange ModelDirectory::stored_range(const Parameter& parameter) const {
  const Location& place = location(parameter.stored.tensor);
  const File& file = files_[place.file];
  if (parameter.stored.transposed) return {&file, place.entry.offset, place.entry.bytes};
  const int64_t width = bytes_of(place.entry.dtype);
  const int64_t first = stored_index(parameter, 0);
  const int64_t end = stored_index(parameter, parameter.numel - 1) + 1;
  return {&file, place.entry.offset + first * width, (end - first) * width};
}

bool ModelDirectory::has(DType dtype) const {
  const auto is_one = [&](const Parameter& parameter) {
    return tensor(parameter.stored.tensor).dtype == dtype;
  };
  return std::any_of(spec_.segments.begin(), spec_.segments.end(), [&](const auto& s) {
    return std::any_of(s.parameters.begin(), s.parameters.end(), is_one);
  });
}

ModelDirectory::StoredRange ModelDirectory::stored_range(const std::string& kept) const {
  const Location& place = location(kept);
  return {&files_[place.file], place.entry.offset, place.entry.bytes};
}

int64_t ModelDirectory::bytes_of_kept() const {
  int64_t bytes = 0;
  for (const std::string& name : kept_) bytes += location(name).entry.bytes;
  return bytes;
}

std::vector<std::string> ModelDirectory::notes() const {
  std::vector<std::string> notes;
  if (fp8_) {
    notes.push_back(
        fmt::format("the weights are FP8 with a scale for each block of {} x {}: they are widened "
                    "with their scales, and an exported model has no quantization_config",
                    fp8_->rows, fp8_->cols));
  }
  if (!second_embedding_.empty()) {
    notes.push_back(
        fmt::format("\"{}\" is a second copy of the embedding (tie_word_embeddings): an exported "
                    "model has one copy",
                    second_embedding_));
  }
  if (!kept_.empty()) {
    notes.push_back(
        fmt::format("{} tensors ({}) are outside of the text model, the first is \"{}\": they are "
                    "not trained, and an exported model has them unchanged",
                    kept_.size(), format_bytes(bytes_of_kept()), kept_.front()));
  }
  std::string dropouts;
  const TextModel text = find_text_model(config_, path_);
  for (const char* name : kDropouts) {
    const Json* value = text.members->find(name);
    if (value == nullptr) value = text.beside.find(name);
    if (value == nullptr || value->number().value_or(0) == 0) continue;
    dropouts += fmt::format("{}{} {}", dropouts.empty() ? "" : ", ", name, *value->number());
  }
  if (!dropouts.empty()) {
    notes.push_back("config.json has dropout for training (" + dropouts +
                    "): no dropout is applied, as with a value of 0");
  }
  return notes;
}

}  // namespace strata::model
