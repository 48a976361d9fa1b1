// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/model/spec.h"
#include "engine/model_files/model_directory.h"

namespace strata::checkpoint {

// Which frozen weights a run has: a checkpoint holds none, only this, which tells another model's
// from its own. What changes in the files during a run is FrozenSource's.
struct FrozenFingerprint {
  // Of every value, as 16 hexadecimal digits; empty where nothing is frozen. Equal for equal
  // values, whatever their names of files, shards and dtypes.
  std::string hash;
  // Of the files that they were read from: device, inode, size, and when contents and inode last
  // changed. Whoever writes to a file changes it, also where the time of writing is set back.
  std::string files;
};

// Reads all frozen weights, unless the files are those of `known`, untouched: then its hash is
// theirs still. So a run from a model reads them once more than it needs to (3 GB take as long as
// the drive: 2 seconds at 1.8 GB/s), and what uses a checkpoint only where files were copied or
// changed.
//
// Threads: any. Failure: Error (kIo, kCorrupt). Memory: model::transfer_buffer_bytes(spec) and
// 256 KiB, 18 MiB more where files have the transpose. `spec` is of `model`, with groups applied.
FrozenFingerprint frozen_fingerprint(const model::ModelDirectory& model,
                                     const model::ModelSpec& spec,
                                     const FrozenFingerprint& known = {});

}  // namespace strata::checkpoint
