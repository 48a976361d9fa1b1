// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "engine/checkpoint/checkpoint_file.h"
#include "engine/checkpoint/checkpoint_manifest.h"
#include "engine/exec/state_io.h"

namespace strata::checkpoint {

// Reads the state of a checkpoint for any mesh and ZeRO stage: parts are found by tensor slice,
// segment and element, and joined. Frozen chunks come from `frozen`, the model that they were
// loaded from.
//
// Guarantees: every block is verified before a byte of it is used.
// Threads: one at a time; each rank has its own.
// Failure: the constructor throws Error (kConfig for the checkpoint of another model, with every
// field that differs; kCorrupt; kIo); read throws kCorrupt that names file, offset and segment, or
// kIo.
// Memory: the manifest, and a buffer of kCheckpointBufferBytes. The specs and `frozen` must outlive
// it.
class CheckpointReader : public exec::StateSource {
 public:
  // `path` is the directory of one checkpoint, and `spec` the whole model. What is read is state of
  // `slice` (of tensor ranks, of a stage), or of the whole model if it is null.
  CheckpointReader(const std::string& path, const model::ModelSpec& spec, Recipe recipe,
                   exec::StateSource& frozen, const model::ModelSpec* slice = nullptr);

  const CheckpointManifest& manifest() const { return manifest_; }

  void read(const exec::ChunkState& chunk) override;
  void expect(std::span<const exec::ChunkState> next) override;

  // Elements [first, first + count) of a trainable segment's plane; zero in padding.
  void read_plane(int segment, Plane plane, int64_t first, int64_t count, void* out);

 private:
  struct Place {
    int file = 0;
    int extent = 0;
  };

  // What the file of a tensor rank has of a segment.
  using Key = std::tuple<int, int, Plane>;  // tensor rank, segment, plane

  const StateExtent& extent_at(const Place& place) const;
  void read_parameter(int segment, size_t index, Plane plane, int64_t first, int64_t count,
                      char* out);
  void read_stored(const Key& key, int64_t first, int64_t count, char* out);
  void read_extent(const Place& place, int64_t first, int64_t count, char* out);

  // Constant after construction
  const std::string path_;
  const CheckpointManifest manifest_;
  exec::StateSource& frozen_;
  const model::ModelSpec& slice_;
  const std::vector<model::ModelSpec> stored_;  // by tensor rank
  std::map<Key, std::vector<Place>> places_;    // ascending

  std::vector<CheckpointFile> files_;
  PageBuffer buffer_;
  struct Buffered {
    const StateExtent* extent = nullptr;  // null: the buffer is empty
    int64_t begin = 0;                    // bytes [begin, end) of the extent
    int64_t end = 0;
  };
  Buffered buffered_;  // the contents of buffer_, verified
};

// Reads every block of a checkpoint, and says every ten seconds how far it is. Throws Error
// (kCorrupt, kIo) for the first bad one.
void verify_checkpoint(const std::string& path);

}  // namespace strata::checkpoint
