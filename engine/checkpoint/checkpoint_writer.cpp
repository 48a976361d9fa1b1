// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/checkpoint_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "engine/base/check.h"
#include "engine/base/units.h"
#include "engine/plan/memory_map.h"
#include "io/checksum.h"

namespace strata::checkpoint {

CheckpointWriter::CheckpointWriter(const model::ModelSpec& spec, const shard::Layout& layout,
                                   const CheckpointWriterOptions& options)
    : spec_(spec), layout_(layout), options_(options), active_(options.mesh.saves()), hash_(spec) {
  table_.rank = options.mesh.rank;
  if (!active_) return;
  table_.name = state_file_name(options.mesh.rank);
  for (const shard::Chunk& chunk : layout.chunks) {
    if (!writes(chunk)) continue;
    ++chunks_left_;
    const int64_t part = shard::share_of(chunk.numel, options.mesh.state_shards());
    for (const Plane plane : kPlanes) {
      table_.bytes += round_up(part * width_of(plane, options.recipe), kPageBytes);
    }
  }
  table_.extents.reserve(static_cast<size_t>(chunks_left_) * std::size(kPlanes));
  buffer_ = make_page_buffer();
  out_ = CheckpointFile::create(options.partial + "/" + table_.name, table_.bytes);
}

CheckpointWriter::~CheckpointWriter() {
  if (active_ && !closed_) ::unlink(out_.path().c_str());
}

template <typename Work>
void CheckpointWriter::poison_on_failure(const Work& work) {
  if (poison_) throw *poison_;
  try {
    work();
  } catch (const Error& error) {
    poison_ = error;
    out_.close();
    ::unlink(out_.path().c_str());
    throw;
  }
}

bool CheckpointWriter::writes(const shard::Chunk& chunk) const {
  return active_ && !chunk.frozen && !(chunk.whole && options_.mesh.tensor_rank() > 0);
}

void CheckpointWriter::write(const exec::ChunkState& chunk) {
  STRATA_CHECK(!closed_ && !chunk.frozen);
  if (!writes(layout_.chunks[static_cast<size_t>(chunk.chunk)])) return;
  poison_on_failure([&] { write_chunk(chunk); });
}

void CheckpointWriter::write_chunk(const exec::ChunkState& chunk) {
  STRATA_CHECK(chunk.chunk > last_chunk_ && chunks_left_ > 0);
  STRATA_CHECK(chunk.state_first >= chunk.hi_first &&
               chunk.state_first + chunk.state_count <= chunk.hi_first + chunk.hi_count);
  last_chunk_ = chunk.chunk;
  --chunks_left_;
  STRATA_CHECK(chunk.recipe == options_.recipe);
  write_plane(chunk, Plane::kHi, reinterpret_cast<const char*>(chunk.hi_at(chunk.state_first)));
  write_plane(chunk, Plane::kLo, static_cast<const char*>(chunk.lo));
  write_plane(chunk, Plane::kExpAvg, reinterpret_cast<const char*>(chunk.exp_avg));
  write_plane(chunk, Plane::kExpAvgSq, reinterpret_cast<const char*>(chunk.exp_avg_sq));
  hash_.write(chunk);
}

void CheckpointWriter::write_plane(const exec::ChunkState& chunk, Plane plane, const char* data) {
  const int64_t bytes = chunk.state_count * width_of(plane, options_.recipe);
  if (bytes == 0) return;
  StateExtent extent{spec_.stage.whole_segment(chunk.segment),
                     plane,
                     chunk.state_first,
                     chunk.state_count,
                     offset_,
                     bytes,
                     {}};
  extent.checksums.reserve(static_cast<size_t>(ceil_div(bytes, kCheckpointBlockBytes)));
  STRATA_CHECK(offset_ + round_up(bytes, kPageBytes) <= table_.bytes);
  for (int64_t at = 0; at < bytes; at += kCheckpointBufferBytes) {
    const int64_t now = std::min(kCheckpointBufferBytes, bytes - at);
    for (int64_t block = at; block < at + now; block += kCheckpointBlockBytes) {
      const int64_t length = std::min(kCheckpointBlockBytes, bytes - block);
      extent.checksums.push_back(io::checksum_block(data + block, static_cast<uint64_t>(length),
                                                    options_.nonce,
                                                    block_address(table_.rank, offset_ + block)));
    }
    const int64_t pages = round_up(now, kPageBytes);
    const char* from = data + at;
    if (pages != now || reinterpret_cast<uintptr_t>(from) % kPageBytes != 0) {
      std::memcpy(buffer_.get(), from, static_cast<size_t>(now));
      std::memset(buffer_.get() + now, 0, static_cast<size_t>(pages - now));
      from = buffer_.get();
    }
    out_.write(offset_ + at, from, pages);
  }
  offset_ += round_up(bytes, kPageBytes);
  table_.extents.push_back(std::move(extent));
}

StateFile CheckpointWriter::close() {
  STRATA_CHECK(!closed_);
  if (active_) {
    poison_on_failure([&] {
      STRATA_CHECK(chunks_left_ == 0 && offset_ == table_.bytes);
      out_.sync();
      out_.close();
    });
  }
  closed_ = true;
  table_.state_hash = hash_.value();
  return std::move(table_);
}

}  // namespace strata::checkpoint
