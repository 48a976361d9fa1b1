// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint_file.h"
#include "engine/checkpoint/checkpoint_hash.h"
#include "engine/checkpoint/checkpoint_manifest.h"
#include "engine/exec/state_io.h"
#include "engine/shard/layout.h"

namespace strata::checkpoint {

struct CheckpointWriterOptions {
  std::string partial;  // CheckpointCommit::partial()
  uint64_t nonce = 0;   // CheckpointCommit::nonce()
  plan::Mesh mesh;
  Recipe recipe = Recipe::kFp32;
};

// Receives a rank's state from the checkpoint program and writes it to the rank's file. State that
// several ranks have is written by the first of them: in ZeRO stage 0 all of a slice, and of tensor
// ranks what is not sliced.
//
// Guarantees: the constructor reserves all blocks of the file; bytes bypass the page cache, or
// leave it as soon as they are on disk. Threads: one at a time. Failure: Error that names the file:
// kDoesNotFit when the disk is full, otherwise kIo. After the first failure the file is removed,
// and every later call throws the same Error. Memory: kCheckpointBufferBytes, and 8 bytes a block
// for checksums. `spec`, this rank's, and `layout` must outlive it.
class CheckpointWriter : public exec::StateSink {
 public:
  CheckpointWriter(const model::ModelSpec& spec, const shard::Layout& layout,
                   const CheckpointWriterOptions& options);
  ~CheckpointWriter() override;
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  void write(const exec::ChunkState& chunk) override;

  // Syncs the file and returns its table. Every trainable chunk must have been written.
  StateFile close();

 private:
  bool writes(const shard::Chunk& chunk) const;
  void write_chunk(const exec::ChunkState& chunk);
  void write_plane(const exec::ChunkState& chunk, Plane plane, const char* data);
  template <typename Work>
  void poison_on_failure(const Work& work);

  // Constant after construction
  const model::ModelSpec& spec_;
  const shard::Layout& layout_;
  const CheckpointWriterOptions options_;
  const bool active_;

  CheckpointFile out_;
  PageBuffer buffer_;
  StateFile table_;
  StateHash hash_;
  int64_t offset_ = 0;
  int last_chunk_ = -1;
  int64_t chunks_left_ = 0;
  bool closed_ = false;
  std::optional<Error> poison_;
};

}  // namespace strata::checkpoint
