// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/model/spec.h"
#include "engine/model_files/model_directory.h"

namespace strata::checkpoint {

// Identifies a run's frozen weights. A checkpoint does not contain them, only this fingerprint,
// which distinguishes them from another model's. FrozenSource notices changes during a run.
struct FrozenFingerprint {
  // A hash of all values, as 16 hexadecimal digits; empty when nothing is frozen. It does not
  // depend on the files' names, shards and dtypes.
  std::string hash;
  // A hash of the identities of the files: device, inode, size, and the times when contents and
  // inode last changed. Every write changes it, even if the modification time is set back.
  std::string files;
};

// Reads all frozen weights, unless the files are unchanged since `known`; then its hash is
// returned. So a run that starts from a model reads its frozen weights once more than it would need
// to (3 GB take 2 s at 1.8 GB/s), and a run that uses a checkpoint reads them only when files were
// copied or changed.
//
// Threads: any. Failure: Error (kIo, kCorrupt). Memory: model::transfer_buffer_bytes(spec) and
// 256 KiB, and 18 MiB more when files have transposed tensors. `spec` is the spec of `model`, with
// groups applied.
FrozenFingerprint frozen_fingerprint(const model::ModelDirectory& model,
                                     const model::ModelSpec& spec,
                                     const FrozenFingerprint& known = {});

}  // namespace strata::checkpoint
