// SPDX-License-Identifier: Apache-2.0
#include "engine/session/given_state.h"

#include <algorithm>
#include <vector>

namespace strata::session {

void GivenState::read(const exec::ChunkState& chunk) {
  constexpr int64_t kPiece = 64 << 10;
  const int64_t end = chunk.hi_first + chunk.hi_count;
  const int64_t width = chunk.fp32 ? 4 : 2;
  std::vector<float> values;
  for (int64_t begin = chunk.hi_first; begin < end; begin += kPiece) {
    const int64_t stop = std::min(end, begin + kPiece);
    values.assign(static_cast<size_t>(stop - begin), 0.0f);  // padding between tensors too
    const auto& parameters = spec_.segments[chunk.segment].parameters;
    for (size_t p = 0; p < parameters.size(); ++p) {
      const int64_t from = std::max(begin, parameters[p].offset);
      const int64_t to = std::min(stop, parameters[p].offset + parameters[p].numel);
      if (from >= to) continue;
      weights_(chunk.segment, static_cast<int>(p), from - parameters[p].offset,
               std::span(values).subspan(static_cast<size_t>(from - begin),
                                         static_cast<size_t>(to - from)));
    }
    exec::ChunkState piece = chunk;
    piece.hi_first = begin;
    piece.hi_count = stop - begin;
    piece.hi = static_cast<char*>(chunk.hi) + (begin - chunk.hi_first) * width;
    piece.frozen = chunk.frozen || begin > chunk.hi_first;  // moments are cleared once
    exec::fill_chunk(piece,
                     [&](int64_t element) { return values[static_cast<size_t>(element - begin)]; });
  }
}

}  // namespace strata::session
