// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/checkpoint_manifest.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <optional>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/plan/memory_map.h"
#include "io/checksum.h"

namespace strata::checkpoint {
namespace {

using config::Json;

constexpr const char* kFormat = "strata checkpoint";
// Of a checkpoint without tensor ranks, of tensor ranks that each had the whole vocabulary, and of
// those that cut it. Older programs must refuse what they would read otherwise.
constexpr int64_t kVersion = 1;
constexpr int64_t kVersionOfSlices = 2;
constexpr int64_t kVersionOfVocabulary = 3;
constexpr int64_t kVersionMost = kVersionOfVocabulary;

int64_t version_of(const CheckpointManifest& manifest) {
  if (manifest.tensor_ranks == 1) return kVersion;
  return manifest.cuts_vocabulary ? kVersionOfVocabulary : kVersionOfSlices;
}

constexpr int64_t kBytesMax = int64_t{1} << 48;  // of a file: the most that block_address can hold
constexpr int64_t kWorldMax = int64_t{1} << 16;
constexpr config::JsonLimits kLimits = {.bytes = int64_t{1} << 28, .values = int64_t{1} << 24};

[[noreturn]] void refuse(const std::string& source, const std::string& cause) {
  throw Error(ErrorCode::kCorrupt,
              "cannot read checkpoint: " + source + ": " + cause + " (use another checkpoint)");
}

std::string hex(uint64_t value) {
  return fmt::format("{:016x}", value);
}

std::optional<uint64_t> from_hex(std::string_view text) {
  if (text.size() != 16) return std::nullopt;
  uint64_t value = 0;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (c < 'a' || c > 'f')) return std::nullopt;
    value = value << 4 | static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return value;
}

// Reads the members of one JSON object and checks their types and ranges.
class Members {
 public:
  Members(const Json& json, const std::string& source) : json_(json), source_(source) {
    if (!json.is_object()) refuse(source, "expected an object, found " + json.describe());
  }

  const Json& get(const char* name) const {
    const Json* value = json_.find(name);
    if (value == nullptr) refuse(source_, fmt::format("\"{}\" is missing", name));
    return *value;
  }

  int64_t integer(const char* name, int64_t least, int64_t most) const {
    const std::optional<int64_t> value = get(name).int64();
    if (value && *value >= least && *value <= most) return *value;
    refuse(source_, fmt::format("\"{}\" is {}, not an integer of {} to {}", name,
                                get(name).describe(), least, most));
  }

  const std::string& string(const char* name) const {
    if (get(name).is_string()) return get(name).string();
    refuse(source_, fmt::format("\"{}\" is {}, not a string", name, get(name).describe()));
  }

  uint64_t hash(const char* name) const {
    const std::optional<uint64_t> value = from_hex(string(name));
    if (value) return *value;
    refuse(source_, fmt::format("\"{}\" is not 16 hexadecimal digits", name));
  }

  const Json::Array& items(const char* name) const {
    if (get(name).is_array()) return get(name).items();
    refuse(source_, fmt::format("\"{}\" is {}, not an array", name, get(name).describe()));
  }

  // The index of a string member in a table of names.
  template <size_t N>
  int choice(const char* name, const std::array<const char*, N>& names) const {
    const auto found = std::find(std::begin(names), std::end(names), string(name));
    if (found != std::end(names)) return static_cast<int>(found - std::begin(names));
    refuse(source_, fmt::format("\"{}\" is \"{}\", which is unknown", name, string(name)));
  }

 private:
  const Json& json_;
  const std::string& source_;
};

Json json_of(const exec::LossScale& scale) {
  Json json = Json::object();
  json.set("factor", static_cast<int64_t>(scale.factor));
  json.set("clean_steps", scale.clean_steps);
  return json;
}

exec::LossScale loss_scale_of(const Json& json, const std::string& source) {
  const Members members(json, source);
  const auto most = static_cast<int64_t>(exec::kLossScaleMost);
  const int64_t factor = members.integer("factor", 1, most);
  if (!std::has_single_bit(static_cast<uint64_t>(factor))) {
    refuse(source, fmt::format("\"factor\" of the loss scale is {}, not a power of two", factor));
  }
  return {.factor = static_cast<double>(factor),
          .clean_steps = members.integer("clean_steps", 0, exec::kLossScaleGrowthSteps - 1)};
}

Json json_of(const StateExtent& extent) {
  std::string checksums;
  checksums.reserve(extent.checksums.size() * 16);
  for (const uint64_t checksum : extent.checksums) checksums += hex(checksum);
  Json json = Json::object();
  json.set("segment", extent.segment);
  json.set("plane", name_of(extent.plane));
  json.set("first", extent.first);
  json.set("count", extent.count);
  json.set("offset", extent.offset);
  json.set("bytes", extent.bytes);
  json.set("checksums", std::move(checksums));
  return json;
}

Json json_of(const StateFile& file) {
  Json extents = Json::array();
  for (const StateExtent& extent : file.extents) extents.push_back(json_of(extent));
  Json json = Json::object();
  json.set("name", file.name);
  json.set("rank", file.rank);
  json.set("bytes", file.bytes);
  json.set("state_hash", hex(file.state_hash));
  json.set("extents", std::move(extents));
  return json;
}

StateExtent extent_of(const Json& json, int64_t file_bytes, const std::string& source) {
  const Members members(json, source);
  StateExtent extent;
  extent.segment = static_cast<int>(members.integer("segment", 0, INT32_MAX));
  extent.plane = static_cast<Plane>(members.choice("plane", kPlaneNames));
  extent.first = members.integer("first", 0, kBytesMax);
  extent.count = members.integer("count", 1, kBytesMax);
  extent.offset = members.integer("offset", 0, file_bytes);
  extent.bytes = members.integer("bytes", 1, file_bytes);
  if (extent.offset % kPageBytes != 0 ||
      extent.offset + round_up(extent.bytes, kPageBytes) > file_bytes) {
    refuse(source,
           fmt::format("the extent at byte {} does not lie on pages of the file", extent.offset));
  }
  const std::string_view checksums = members.string("checksums");
  if (static_cast<int64_t>(checksums.size()) !=
      16 * ceil_div(extent.bytes, kCheckpointBlockBytes)) {
    refuse(source, fmt::format("the extent at byte {} does not have one checksum for each block",
                               extent.offset));
  }
  for (size_t at = 0; at < checksums.size(); at += 16) {
    const std::optional<uint64_t> checksum = from_hex(checksums.substr(at, 16));
    if (!checksum) refuse(source, "a checksum is not 16 hexadecimal digits");
    extent.checksums.push_back(*checksum);
  }
  return extent;
}

StateFile state_file_of(const Json& json, const std::string& source) {
  const Members members(json, source);
  StateFile file;
  file.name = members.string("name");
  file.rank = static_cast<int>(members.integer("rank", 0, kWorldMax - 1));
  file.bytes = members.integer("bytes", 0, kBytesMax);
  file.state_hash = members.hash("state_hash");
  if (!file.name.empty() && file.name != state_file_name(file.rank)) {
    refuse(source, "the name of a state file does not match its rank");
  }
  for (const Json& extent : members.items("extents")) {
    file.extents.push_back(extent_of(extent, file.bytes, source));
  }
  return file;
}

// The last member of the text is the checksum of everything before it.
constexpr std::string_view kSealBegin = ",\"checksum\":\"";
constexpr std::string_view kSealEnd = "\"}\n";

std::string seal_of(std::string_view text, int64_t version) {
  const uint64_t checksum =
      io::checksum_block(text.data(), text.size(), static_cast<uint64_t>(version), 0);
  return std::string(kSealBegin) + hex(checksum) + std::string(kSealEnd);
}

std::string sealed(const Json& json, int64_t version) {
  std::string text = json.dump();
  text.pop_back();  // the object's closing brace
  return text + seal_of(text, version);
}

// A later format may have another checksum, so the version is checked first.
void refuse_later_version(std::string_view text, const std::string& source) {
  std::optional<Json> json;
  try {
    json = Json::parse(text, source, kLimits);
  } catch (const Error&) {
    return;
  }
  const Json* format = json->find("format");
  const Json* version = json->find("version");
  if (format == nullptr || !format->is_string() || format->string() != kFormat) return;
  if (version == nullptr || version->int64().value_or(0) <= kVersionMost) return;
  throw Error(ErrorCode::kConfig,
              fmt::format("cannot read checkpoint: {}: it has format version {}, this program "
                          "reads {} (use the version that wrote it)",
                          source, version->dump(), kVersionMost));
}

// Reads a text that was sealed as one of `version` at most.
Json unsealed(std::string_view text, int64_t version, const std::string& source) {
  const size_t seal = kSealBegin.size() + 16 + kSealEnd.size();
  if (text.size() < seal) refuse(source, "it is cut short");
  const std::string_view body = text.substr(0, text.size() - seal);
  const std::string_view seal_of_text = text.substr(body.size());
  while (version > 0 && seal_of_text != seal_of(body, version)) --version;
  if (version == 0) {
    refuse_later_version(text, source);
    refuse(source, "its checksum is wrong: it is damaged or cut short");
  }
  try {
    return Json::parse(text, source, kLimits);
  } catch (const Error& error) {
    throw Error(ErrorCode::kCorrupt, error.what());
  }
}

void check_files(const CheckpointManifest& manifest, const std::string& source) {
  if (manifest.world % (int64_t{manifest.tensor_ranks} * manifest.shard_ranks) != 0) {
    refuse(source, fmt::format("{} ranks are not so many times {} tensor ranks of {} shards",
                               manifest.world, manifest.tensor_ranks, manifest.shard_ranks));
  }
  int rank = -1;
  uint64_t hash = 0;
  for (const StateFile& file : manifest.files) {
    if (file.rank <= rank || file.rank >= manifest.world || file.name.empty()) {
      refuse(source, "its state files are not those of ascending ranks");
    }
    rank = file.rank;
    hash += file.state_hash;
    for (const StateExtent& extent : file.extents) {
      if (extent.bytes == extent.count * width_of(extent.plane, manifest.recipe)) continue;
      refuse(source, fmt::format("{}: the size of the extent at byte {} does not fit its elements",
                                 file.name, extent.offset));
    }
  }
  if (hash != manifest.state_hash) refuse(source, "its state hash is not the sum of its files'");
}

}  // namespace

std::string state_file_name(int rank) {
  return fmt::format("state-rank{:05}.bin", rank);
}

std::string to_text(const StateFile& file) {
  return sealed(json_of(file), kVersion);
}

StateFile parse_state_file(std::string_view text) {
  const std::string source = "a rank's table";
  return state_file_of(unsealed(text, kVersion, source), source);
}

std::string to_text(const CheckpointManifest& manifest) {
  Json files = Json::array();
  for (const StateFile& file : manifest.files) files.push_back(json_of(file));
  Json json = Json::object();
  const int64_t version = version_of(manifest);
  json.set("format", kFormat);
  json.set("version", version);
  json.set("step", manifest.step);
  if (manifest.updates) json.set("updates", *manifest.updates);
  if (manifest.loss_scale) json.set("loss_scale", json_of(*manifest.loss_scale));
  json.set("nonce", hex(manifest.nonce));
  if (!manifest.run.empty()) json.set("run", manifest.run);
  json.set("recipe", name_of(manifest.recipe));
  json.set("world", manifest.world);
  json.set("zero_stage", manifest.zero_stage);
  if (version != kVersion) {
    json.set("tensor_ranks", manifest.tensor_ranks);
    json.set("shard_ranks", manifest.shard_ranks);
  }
  json.set("state_hash", hex(manifest.state_hash));
  json.set("model", manifest.model);
  json.set("trainer", manifest.trainer);
  json.set("files", std::move(files));
  return sealed(json, version);
}

CheckpointManifest parse_manifest(std::string_view text, const std::string& source) {
  const Json json = unsealed(text, kVersionMost, source);
  const Members members(json, source);
  if (members.string("format") != kFormat) refuse(source, "it is not a checkpoint's manifest");
  const int64_t version = members.integer("version", kVersion, kVersionMost);
  CheckpointManifest manifest;
  manifest.step = members.integer("step", 0, INT64_MAX);
  if (json.find("updates") != nullptr) {
    manifest.updates = members.integer("updates", 0, INT64_MAX);  // some may be of elsewhere
  }
  if (json.find("loss_scale") != nullptr) {
    manifest.loss_scale = loss_scale_of(members.get("loss_scale"), source);
  }
  manifest.nonce = members.hash("nonce");
  if (json.find("run") != nullptr) manifest.run = members.string("run");
  manifest.recipe = static_cast<Recipe>(members.choice("recipe", recipe_names()));
  manifest.world = static_cast<int>(members.integer("world", 1, kWorldMax));
  manifest.zero_stage = static_cast<int>(members.integer("zero_stage", 0, 3));
  if (version != kVersion) {
    manifest.cuts_vocabulary = version == kVersionOfVocabulary;
    manifest.tensor_ranks = static_cast<int>(members.integer("tensor_ranks", 2, manifest.world));
    manifest.shard_ranks = static_cast<int>(members.integer("shard_ranks", 1, manifest.world));
  }
  manifest.state_hash = members.hash("state_hash");
  manifest.model = members.get("model");
  manifest.trainer = members.get("trainer");
  for (const Json& file : members.items("files")) {
    manifest.files.push_back(state_file_of(file, source));
  }
  check_files(manifest, source);
  return manifest;
}

}  // namespace strata::checkpoint
