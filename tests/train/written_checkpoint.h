// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/checkpoint_writer.h"
#include "engine/model/tensor_slice.h"
#include "engine/shard/layout.h"
#include "tests/support/random_state.h"
#include "tests/support/temporary_directory.h"

// Checkpoints of known state, as ranks of any world write them.
namespace strata::checkpoint {

inline std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline model::ModelSpec spec_for(const model::Architecture& architecture, int shards) {
  model::ModelSpec spec = model::build_spec(architecture);
  model::assign_offsets(spec, shards);
  return spec;
}

// What a rank of a mesh has of a model.
inline model::ModelSpec slice_for(const model::ModelSpec& whole, const plan::Mesh& mesh,
                                  bool cuts_vocabulary = true) {
  model::ModelSpec slice =
      model::tensor_slice(whole, {mesh.tensor_rank(), mesh.tensor}, cuts_vocabulary);
  model::assign_offsets(slice, mesh.shards());
  return slice;
}

// One rank's part of one chunk, in memory of its own.
class ChunkMemory {
 public:
  ChunkMemory(const shard::Layout& layout, size_t chunk, Recipe recipe, int rank)
      : numel_(static_cast<size_t>(layout.part_numel(static_cast<int>(chunk)))),
        hi_(numel_),
        lo_(numel_),
        exp_avg_(numel_),
        exp_avg_sq_(numel_) {
    const shard::Chunk& at = layout.chunks[chunk];
    const auto count = static_cast<int64_t>(numel_);
    state_.segment = at.segment;
    state_.chunk = static_cast<int>(chunk);
    state_.frozen = at.frozen;
    state_.recipe = recipe;
    state_.hi_first = state_.state_first = at.offset + count * rank;
    state_.hi_count = state_.state_count = count;
    state_.hi = hi_.data();
    state_.lo = state_.has_masters() ? nullptr : lo_.data();
    state_.exp_avg = exp_avg_.data();
    state_.exp_avg_sq = exp_avg_sq_.data();
  }
  const exec::ChunkState& state() const { return state_; }

 private:
  size_t numel_;
  std::vector<float> hi_, lo_;  // elements of any recipe fit
  std::vector<float> exp_avg_, exp_avg_sq_;
  exec::ChunkState state_;
};

// What element i of a segment has: masters of a source of random state, moments that follow from
// them.
template <typename Source>
void fill(const exec::ChunkState& chunk, Source& source) {
  source.read(chunk);
  for (int64_t i = 0; i < chunk.state_count; ++i) {
    const float value = source.value(chunk.segment, chunk.state_first + i);
    chunk.exp_avg[i] = 2 * value;
    chunk.exp_avg_sq[i] = value * value;
  }
}

class WrittenCheckpoints : public testing::Test {
 protected:
  struct Written {
    const model::ModelSpec* spec = nullptr;  // the whole model
    int world = 1;
    Recipe recipe = Recipe::kFp32;
    uint64_t seed = 1;
    int tensor = 1;
    int context = 1;
    bool cuts_vocabulary = true;
    plan::Mesh mesh_of(int rank) const {
      return {.world = world, .rank = rank, .tensor = tensor, .context = context};
    }
  };

  // What one rank writes into the partial checkpoint.
  static StateFile write_rank(const CheckpointCommit& commit, const Written& what, int rank) {
    const plan::Mesh mesh = what.mesh_of(rank);
    const model::ModelSpec slice = slice_for(*what.spec, mesh, what.cuts_vocabulary);
    const shard::Layout layout = shard::make_layout(slice, mesh.shards());
    CheckpointWriterOptions options;
    options.partial = commit.partial();
    options.nonce = commit.nonce();
    options.mesh = mesh;
    options.recipe = what.recipe;
    CheckpointWriter writer(slice, layout, options);
    test::SliceSource source(slice, *what.spec, what.seed);
    for (size_t c = 0; c < layout.chunks.size(); ++c) {
      if (layout.chunks[c].frozen) continue;
      const ChunkMemory memory(layout, c, what.recipe, mesh.shard_rank());
      fill(memory.state(), source);
      writer.write(memory.state());
    }
    return writer.close();
  }

  static CheckpointContents contents_of(const Written& what, std::vector<StateFile> files) {
    CheckpointContents contents;
    contents.spec = what.spec;
    contents.recipe = what.recipe;
    contents.mesh = what.mesh_of(0);
    contents.trainer = config::Json::object();
    contents.files = std::move(files);
    return contents;
  }

  std::string write(int64_t step, const Written& what) const {
    const model::ModelSpec slice = slice_for(*what.spec, what.mesh_of(0), what.cuts_vocabulary);
    CheckpointCommit commit(directory_, step, checkpoint_bytes(slice, what.recipe));
    std::vector<StateFile> files;
    for (int rank = what.world - 1; rank >= 0; --rank) {  // in any order
      files.push_back(write_rank(commit, what, rank));
    }
    return commit.commit(contents_of(what, std::move(files)));
  }

  // What lies in the directory of checkpoints; 16 random digits as NONCE.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      std::string name = entry.path().filename().string();
      const size_t mark = name.find(".tmp-");
      if (mark != std::string::npos && name.size() == mark + 21) {
        name = name.substr(0, mark + 5) + "NONCE";
      }
      names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  const test::TemporaryDirectory home_;
  const std::string directory_ = home_ / "checkpoints";
};

using Names = std::vector<std::string>;

}  // namespace strata::checkpoint
