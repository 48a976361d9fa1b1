// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/spec.h"

// The chunk table: which rank owns which bytes. It depends only on the model and the shard count.
namespace strata::shard {

// Elements [first, first + count) of a chunk, all in one parameter group.
struct GroupRun {
  int64_t first = 0;
  int64_t count = 0;
  int group = 0;
};

// A range of a segment's flat buffer that is moved and updated as one. `numel` is a multiple of
// 4096 * shard_count; rank r owns its elements [r * part, (r + 1) * part).
struct Chunk {
  int segment = 0;
  int64_t offset = 0;  // elements from the start of the segment's flat buffer
  int64_t numel = 0;
  bool frozen = false;
  bool whole = false;               // in a tensor slice: every rank has these parameters
  std::vector<GroupRun> runs = {};  // ascending, cover the chunk; padding joins the run before
};

// A rank's share of the elements or bytes of chunks. All shares are equal, since `numel` is a
// multiple of the shard count.
template <class T>
constexpr T share_of(T whole, int shards) {
  return whole / shards;
}

struct Layout {
  int shard_count = 1;
  std::vector<Chunk> chunks;     // by segment, then by offset
  std::vector<int> first_chunk;  // by segment; one more entry than segments
  int64_t part_numel(int chunk) const { return share_of(chunks[chunk].numel, shard_count); }
};

// spec.offsets must have been assigned for the same shard count.
Layout make_layout(const model::ModelSpec& spec, int shard_count);

}  // namespace strata::shard
