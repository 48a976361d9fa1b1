// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/checkpoint_slices.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "engine/base/error.h"
#include "engine/model/tensor_slice.h"

namespace strata::checkpoint {
namespace {

// Parts of a plane: the first element and the count of each.
using Parts = std::vector<std::pair<int64_t, int64_t>>;

// Whether parts follow each other from 0 on; `covered` is set to where they no longer do.
bool follow(Parts& parts, int64_t& covered) {
  std::sort(parts.begin(), parts.end());
  covered = 0;
  for (const auto& [first, count] : parts) {
    if (first != covered) return false;
    covered += count;
  }
  return true;
}

}  // namespace

std::vector<model::ModelSpec> stored_slices(const CheckpointManifest& manifest,
                                            const model::ModelSpec& whole,
                                            const std::string& source) {
  if (manifest.tensor_ranks == 1) return {whole};
  try {
    model::require_sliceable(whole.architecture, manifest.tensor_ranks);
  } catch (const Error&) {
    throw Error(ErrorCode::kCorrupt,
                fmt::format("cannot read checkpoint: {}: {} tensor ranks cannot have written this "
                            "model (use another checkpoint)",
                            source, manifest.tensor_ranks));
  }
  return model::tensor_slices(whole, manifest.tensor_ranks, manifest.shard_ranks,
                              manifest.cuts_vocabulary);
}

bool is_stored(const model::ModelSpec& slice, const model::Parameter& parameter) {
  return !parameter.frozen && !(parameter.whole && slice.tensor.rank > 0);
}

void check_coverage(const CheckpointManifest& manifest, const std::vector<model::ModelSpec>& slices,
                    const std::string& source) {
  std::map<std::tuple<int, int, Plane>, Parts> parts;
  for (const StateFile& file : manifest.files) {
    for (const StateExtent& extent : file.extents) {
      parts[{file.rank % manifest.tensor_ranks, extent.segment, extent.plane}].emplace_back(
          extent.first, extent.count);
    }
  }
  for (const model::ModelSpec& slice : slices) {
    for (size_t s = 0; s < slice.segments.size(); ++s) {
      int64_t end = 0;
      for (const model::Parameter& parameter : slice.segments[s].parameters) {
        if (is_stored(slice, parameter)) end = std::max(end, parameter.offset + parameter.numel);
      }
      for (const Plane plane : kPlanes) {
        if (end == 0 || width_of(plane, manifest.recipe) == 0) continue;
        int64_t covered = 0;
        if (follow(parts[{slice.tensor.rank, static_cast<int>(s), plane}], covered) &&
            covered >= end) {
          continue;
        }
        throw Error(ErrorCode::kCorrupt,
                    fmt::format("cannot read checkpoint: {}: {} of {} is missing or stored twice "
                                "from element {} on (use another checkpoint)",
                                source, name_of(plane), slice.segments[s].name, covered));
      }
    }
  }
}

}  // namespace strata::checkpoint
