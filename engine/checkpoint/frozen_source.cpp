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
  const uint64_t width = chunk.fp32 ? sizeof(float) : sizeof(uint16_t);
  const uint64_t hash =
      io::checksum_block(chunk.hi, static_cast<uint64_t>(chunk.hi_count) * width, index, 0);
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
