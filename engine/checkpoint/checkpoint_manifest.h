// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/json.h"
#include "engine/exec/loss_scale.h"
#include "engine/model/spec.h"
#include "engine/plan/plan.h"

// The manifest of a checkpoint (manifest.json): lists every extent of its state files with the
// checksums of its blocks, and ends with a checksum of its own text.
namespace strata::checkpoint {

// A checksum covers this many bytes of an extent, counted from its start; the last block may be
// shorter.
inline constexpr int64_t kCheckpointBlockBytes = int64_t{1} << 20;

// Elements [first, first + count) of one plane of a segment, which start at a page of a state file.
struct StateExtent {
  int segment = 0;
  Plane plane = Plane::kHi;
  int64_t first = 0;
  int64_t count = 0;
  int64_t offset = 0;  // bytes from the start of the file
  int64_t bytes = 0;
  std::vector<uint64_t> checksums;  // one a block
};

// The state file of one rank. The name is empty when the rank has no state of its own.
struct StateFile {
  std::string name;  // "state-rank00000.bin"
  int rank = 0;
  int64_t bytes = 0;
  uint64_t state_hash = 0;  // this rank's part of the state hash (checkpoint_hash.h)
  std::vector<StateExtent> extents;
};

// Converts a table to a text that is sent to rank 0, and back. Throws Error (kCorrupt) for any
// other text.
std::string to_text(const StateFile& file);
StateFile parse_state_file(std::string_view text);

struct CheckpointManifest {
  int64_t step = 0;
  // The number of updates applied, for AdamW's bias correction. Steps without a target apply none,
  // and neither do steps whose gradients are not finite, unless updates come in backward. nullopt
  // in checkpoints from before updates were counted.
  std::optional<int64_t> updates;
  std::optional<exec::LossScale> loss_scale;  // where the recipe scales the loss
  uint64_t nonce = 0;                         // seeds the checksums of the blocks
  std::string run;  // the nonce of the run; empty in checkpoints from before runs had one
  Recipe recipe = Recipe::kFp32;
  int world = 1;
  int zero_stage = 3;
  // Rank r wrote the slice of tensor rank r % tensor_ranks, with the offsets of shard_ranks shards,
  // which tell nothing where there is one tensor rank.
  int tensor_ranks = 1;
  bool cuts_vocabulary = true;  // tensor ranks have own tokens of embedding and head
  int shard_ranks = 1;
  uint64_t state_hash = 0;
  config::Json model;    // from model_identity()
  config::Json trainer;  // the trainer's own: options, seed, data cursor, tokens seen
  std::vector<StateFile> files;

  // `otherwise`: the updates of a checkpoint that does not say how many there were.
  exec::UpdateHistory history(int64_t otherwise) const {
    return {.updates = updates.value_or(otherwise), .loss_scale = loss_scale};
  }
};

std::string to_text(const CheckpointManifest& manifest);

// Throws Error (kCorrupt) that names `source` unless the text is whole and all its numbers are in
// range, and Error (kConfig) for a later version.
CheckpointManifest parse_manifest(std::string_view text, const std::string& source);

// What must be equal so that state fits a model: architecture, recipe, and the names, shapes and
// freezing of all parameters.
config::Json model_identity(const model::ModelSpec& spec, Recipe recipe);

// "hidden: 512 in the checkpoint, 768 here; ..."; empty when they are equal.
std::string identity_difference(const config::Json& saved, const config::Json& here);

std::string state_file_name(int rank);

// The address of a block for its checksum; the nonce is the tag.
inline uint64_t block_address(int rank, int64_t offset) {
  return (static_cast<uint64_t>(rank) << 48) | static_cast<uint64_t>(offset);
}

}  // namespace strata::checkpoint
