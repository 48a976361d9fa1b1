// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/frozen_source.h"

#include <fmt/format.h>

#include "engine/base/error.h"
#include "io/checksum.h"

namespace strata::checkpoint {

FrozenSource::FrozenSource(exec::StateSource& source, const model::ModelSpec& spec,
                           std::string files)
    : source_(source), spec_(spec), files_(std::move(files)) {}

void FrozenSource::read(const exec::ChunkState& chunk) {
  source_.read(chunk);
  const auto index = static_cast<size_t>(chunk.chunk);
  if (seen_.size() <= index) seen_.resize(index + 1);
  const auto bytes = static_cast<uint64_t>(chunk.hi_bytes(chunk.hi_count));
  const uint64_t hash = io::checksum_block(chunk.hi, bytes, index, 0);
  if (seen_[index] == 0) seen_[index] = hash;
  if (seen_[index] != hash) {
    throw Error(ErrorCode::kCorrupt,
                fmt::format("frozen weights: {} of {} differ from what was read before: the files "
                            "were changed during the run, or the drive returns wrong bytes "
                            "(restore them and continue with --resume)",
                            spec_.segments[static_cast<size_t>(chunk.segment)].name, files_));
  }
}

}  // namespace strata::checkpoint
