// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/checkpoint_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "engine/base/check.h"
#include "engine/base/reading_progress.h"
#include "engine/base/units.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/checkpoint_slices.h"
#include "engine/model/slice_overlap.h"
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

// Throws for the checkpoint of another model, before its slices are made.
CheckpointManifest manifest_of(const std::string& path, const model::ModelSpec& spec,
                               Recipe recipe) {
  CheckpointManifest manifest = read_manifest(path);
  const std::string difference = identity_difference(manifest.model, model_identity(spec, recipe));
  if (difference.empty()) return manifest;
  throw Error(ErrorCode::kConfig, "cannot use checkpoint: " + path + ": it is of another model: " +
                                      difference + " (use the model and options it was made with)");
}

// The parameter of that name in a stored slice; null where that slice's files have none of it. Most
// have the same index in all slices.
const model::Parameter* find_stored(const model::ModelSpec& slice, int segment, size_t index,
                                    const std::string& name) {
  const auto& parameters = slice.segments[static_cast<size_t>(segment)].parameters;
  const auto is_it = [&](const model::Parameter& one) { return one.name == name; };
  const auto found = is_it(parameters[index]) ? parameters.begin() + static_cast<int64_t>(index)
                                              : std::ranges::find_if(parameters, is_it);
  STRATA_CHECK(found != parameters.end());
  return is_stored(slice, *found) ? &*found : nullptr;
}

}  // namespace

CheckpointReader::CheckpointReader(const std::string& path, const model::ModelSpec& spec,
                                   Recipe recipe, exec::StateSource& frozen,
                                   const model::ModelSpec* slice)
    : path_(path),
      manifest_(manifest_of(path, spec, recipe)),
      frozen_(frozen),
      slice_(slice == nullptr ? spec : *slice),
      stored_(stored_slices(manifest_, spec, path)) {
  check_coverage(manifest_, stored_, path);
  for (size_t f = 0; f < manifest_.files.size(); ++f) {
    const StateFile& file = manifest_.files[f];
    files_.push_back(CheckpointFile::open(path + "/" + file.name));
    for (size_t e = 0; e < file.extents.size(); ++e) {
      const StateExtent& extent = file.extents[e];
      places_[{file.rank % manifest_.tensor_ranks, extent.segment, extent.plane}].push_back(
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

void CheckpointReader::expect(std::span<const exec::ChunkState> next) {
  std::vector<exec::ChunkState> frozen;
  std::ranges::copy_if(next, std::back_inserter(frozen), &exec::ChunkState::frozen);
  if (!frozen.empty()) frozen_.expect(frozen);
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

// Padding is zero; files of another mesh have theirs elsewhere.
void CheckpointReader::read_plane(int segment, Plane plane, int64_t first, int64_t count,
                                  void* out) {
  const int64_t width = width_of(plane, manifest_.recipe);
  char* to = static_cast<char*>(out);
  int64_t next = first;
  const auto clear_up_to = [&](int64_t element) {
    if (element <= next) return;
    std::memset(to + (next - first) * width, 0, static_cast<size_t>((element - next) * width));
    next = element;
  };
  const auto& parameters = slice_.segments[static_cast<size_t>(segment)].parameters;
  for (size_t index = 0; index < parameters.size(); ++index) {
    const model::Parameter& parameter = parameters[index];
    const int64_t begin = std::max(first, parameter.offset);
    const int64_t end = std::min(first + count, parameter.offset + parameter.numel);
    if (parameter.frozen || begin >= end) continue;
    clear_up_to(begin);
    read_parameter(segment, index, plane, begin - parameter.offset, end - begin,
                   to + (begin - first) * width);
    next = end;
  }
  clear_up_to(first + count);
}

// Slice by slice, so that each is read from its start to its end.
void CheckpointReader::read_parameter(int segment, size_t index, Plane plane, int64_t first,
                                      int64_t count, char* out) {
  const model::Parameter& here = slice_.segments[static_cast<size_t>(segment)].parameters[index];
  const int whole = slice_.stage.whole_segment(segment);
  const int64_t width = width_of(plane, manifest_.recipe);
  for (const model::ModelSpec& slice : stored_) {
    const model::Parameter* there = find_stored(slice, whole, index, here.name);
    if (there == nullptr) continue;
    const Key key = {slice.tensor.rank, whole, plane};
    model::for_each_overlap(here, first, count, *there, [&](const model::SliceOverlap& both) {
      read_stored(key, there->offset + both.there, both.count, out + (both.here - first) * width);
    });
  }
}

void CheckpointReader::read_stored(const Key& key, int64_t first, int64_t count, char* out) {
  const auto found = places_.find(key);
  STRATA_CHECK(found != places_.end());  // as coverage was checked
  const int64_t width = width_of(std::get<Plane>(key), manifest_.recipe);
  const auto& places = found->second;
  auto place = std::upper_bound(
      places.begin(), places.end(), first,
      [&](int64_t element, const Place& at) { return element < extent_at(at).first; });
  STRATA_CHECK(place != places.begin());
  --place;
  for (int64_t next = first; next < first + count; ++place) {
    STRATA_CHECK(place != places.end());
    const StateExtent& extent = extent_at(*place);
    const int64_t end = std::min(first + count, extent.first + extent.count);
    read_extent(*place, next, end - next, out + (next - first) * width);
    next = end;
  }
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
  int64_t all_bytes = 0;
  for (const StateFile& table : manifest.files) all_bytes += table.bytes;
  ReadingProgress progress("checkpoint: " + path, all_bytes);
  for (const StateFile& table : manifest.files) {
    CheckpointFile file = CheckpointFile::open(path + "/" + table.name);
    for (const StateExtent& extent : table.extents) {
      const ExtentReader reader{file, extent, table.rank, manifest.nonce};
      for (int64_t at = 0; at < extent.bytes; at += kCheckpointBufferBytes) {
        const int64_t end = reader.end_of(at, extent.bytes);
        reader.read(at, end, buffer.get());
        progress.add(end - at);
      }
    }
  }
}

}  // namespace strata::checkpoint
