// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/weights_sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "io/checksum.h"

namespace strata::checkpoint {

std::string weights_sample(const model::ModelDirectory& model) {
  std::array<char, 4096> bytes;
  uint64_t hash = 0;
  for (const model::Segment& segment : model.spec().segments) {
    for (const model::Parameter& parameter : segment.parameters) {
      const model::ModelDirectory::StoredRange stored = model.stored_range(parameter);
      const int64_t count = std::min<int64_t>(stored.bytes, bytes.size());
      const int64_t first = stored.offset + (stored.bytes - count) / 2;
      stored.file->read_at(first, bytes.data(), count);
      hash = io::checksum_block(parameter.name.data(), parameter.name.size(), 0, hash);
      hash = io::checksum_block(bytes.data(), static_cast<uint64_t>(count), 0, hash);
    }
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace strata::checkpoint
