// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/checkpoint_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "engine/base/check.h"
#include "engine/base/units.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/plan/memory_map.h"
#include "io/checksum.h"

namespace strata::checkpoint {
namespace {

// Reads one extent of an open file and verifies its blocks.
struct ExtentReader {
  CheckpointFile& file;
  const StateExtent& extent;
  int rank;
  uint64_t nonce;

  // Reads bytes [begin, end) of the extent; `begin` is the start of a block.
  void read(int64_t begin, int64_t end, char* buffer) const {
    file.read(extent.offset + begin, buffer, round_up(end - begin, kPageBytes));
    for (int64_t block = begin; block < end; block += kCheckpointBlockBytes) {
      const int64_t bytes = std::min(kCheckpointBlockBytes, extent.bytes - block);
      const uint64_t checksum =
          io::checksum_block(buffer + (block - begin), static_cast<uint64_t>(bytes), nonce,
                             block_address(rank, extent.offset + block));
      if (checksum == extent.checksums[static_cast<size_t>(block / kCheckpointBlockBytes)])
        continue;
      throw Error(
          ErrorCode::kCorrupt,
          fmt::format(
              "cannot read checkpoint: {} at byte {}: a checksum is wrong (plane {}, segment "
              "{}): the file is damaged (use another checkpoint)",
              file.path(), extent.offset + block, name_of(extent.plane), extent.segment));
    }
  }

  // Where a read from `begin` on ends: at a full buffer, or at the end of the block that contains
  // `last`.
  int64_t end_of(int64_t begin, int64_t last) const {
    return std::min(
        {begin + kCheckpointBufferBytes, round_up(last, kCheckpointBlockBytes), extent.bytes});
  }
};

}  // namespace

CheckpointReader::CheckpointReader(const std::string& path, const model::ModelSpec& spec,
                                   Recipe recipe, exec::StateSource& frozen)
    : path_(path), manifest_(read_manifest(path)), frozen_(frozen) {
  const std::string difference = identity_difference(manifest_.model, model_identity(spec, recipe));
  if (!difference.empty()) {
    throw Error(ErrorCode::kConfig, "cannot use checkpoint: " + path +
                                        ": it is of another model: " + difference +
                                        " (use the model and options it was made with)");
  }
  check_coverage(manifest_, spec, path);
  for (size_t f = 0; f < manifest_.files.size(); ++f) {
    const StateFile& file = manifest_.files[f];
    files_.push_back(CheckpointFile::open(path + "/" + file.name));
    for (size_t e = 0; e < file.extents.size(); ++e) {
      places_[{file.extents[e].segment, file.extents[e].plane}].push_back(
          {static_cast<int>(f), static_cast<int>(e)});
    }
  }
  for (auto& [key, places] : places_) {
    std::sort(places.begin(), places.end(), [&](const Place& a, const Place& b) {
      return extent_at(a).first < extent_at(b).first;
    });
  }
  buffer_ = make_page_buffer();
}

const StateExtent& CheckpointReader::extent_at(const Place& place) const {
  return manifest_.files[static_cast<size_t>(place.file)]
      .extents[static_cast<size_t>(place.extent)];
}

void CheckpointReader::read(const exec::ChunkState& chunk) {
  if (chunk.frozen) return frozen_.read(chunk);
  read_plane(chunk.segment, Plane::kHi, chunk.hi_first, chunk.hi_count, chunk.hi);
  if (chunk.lo) {
    read_plane(chunk.segment, Plane::kLo, chunk.state_first, chunk.state_count, chunk.lo);
  }
  read_plane(chunk.segment, Plane::kExpAvg, chunk.state_first, chunk.state_count, chunk.exp_avg);
  read_plane(chunk.segment, Plane::kExpAvgSq, chunk.state_first, chunk.state_count,
             chunk.exp_avg_sq);
}

void CheckpointReader::read_plane(int segment, Plane plane, int64_t first, int64_t count,
                                  void* out) {
  const int64_t width = width_of(plane, manifest_.recipe);
  char* to = static_cast<char*>(out);
  int64_t next = first;
  const auto found = places_.find({segment, plane});
  if (found != places_.end()) {
    const auto& places = found->second;
    auto place = std::upper_bound(
        places.begin(), places.end(), first,
        [&](int64_t element, const Place& at) { return element < extent_at(at).first; });
    if (place != places.begin()) --place;
    for (; place != places.end() && next < first + count; ++place) {
      const StateExtent& extent = extent_at(*place);
      const int64_t end = std::min(first + count, extent.first + extent.count);
      if (end <= next) continue;
      read_extent(*place, next, end - next, to + (next - first) * width);
      next = end;
    }
  }
  // Coverage was checked, so elements that are not in the files are padding of this world size.
  std::memset(to + (next - first) * width, 0, static_cast<size_t>((first + count - next) * width));
}

void CheckpointReader::read_extent(const Place& place, int64_t first, int64_t count, char* out) {
  const StateFile& file = manifest_.files[static_cast<size_t>(place.file)];
  const StateExtent& extent = extent_at(place);
  const ExtentReader reader{files_[static_cast<size_t>(place.file)], extent, file.rank,
                            manifest_.nonce};
  const int64_t width = extent.bytes / extent.count;
  int64_t next = (first - extent.first) * width;
  const int64_t last = next + count * width;
  while (next < last) {
    // The last block of the previous read is still in the buffer.
    if (!(buffered_.extent == &extent && buffered_.begin <= next && next < buffered_.end)) {
      const int64_t begin = next / kCheckpointBlockBytes * kCheckpointBlockBytes;
      const int64_t end = reader.end_of(begin, last);
      buffered_ = {};
      reader.read(begin, end, buffer_.get());
      buffered_ = {&extent, begin, end};
    }
    const int64_t now = std::min(buffered_.end, last) - next;
    std::memcpy(out, buffer_.get() + (next - buffered_.begin), static_cast<size_t>(now));
    out += now;
    next += now;
  }
}

void verify_checkpoint(const std::string& path) {
  const CheckpointManifest manifest = read_manifest(path);
  const PageBuffer buffer = make_page_buffer();
  for (const StateFile& table : manifest.files) {
    CheckpointFile file = CheckpointFile::open(path + "/" + table.name);
    for (const StateExtent& extent : table.extents) {
      const ExtentReader reader{file, extent, table.rank, manifest.nonce};
      for (int64_t at = 0; at < extent.bytes; at += kCheckpointBufferBytes) {
        reader.read(at, reader.end_of(at, extent.bytes), buffer.get());
      }
    }
  }
}

}  // namespace strata::checkpoint
