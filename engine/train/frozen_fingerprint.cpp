// SPDX-License-Identifier: Apache-2.0
#include "engine/train/frozen_fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "io/checksum.h"

namespace strata::train {
namespace {

constexpr int64_t kWholeElements = int64_t{4} << 20;  // a parameter up to here is hashed whole
constexpr int64_t kTileElements = int64_t{64} << 10;
constexpr int64_t kPlaces = 256;
constexpr int64_t kElementsAtPlace = 64;
// Neighbours in a row of a matrix whose transpose is stored lie far from each other in the file.
constexpr int64_t kTransposedPlaces = 16;

uint64_t hash_of(const model::ModelDirectory& model, const model::Parameter& parameter) {
  uint64_t hash = io::checksum_block(parameter.name.data(), parameter.name.size(), 0, 0);
  std::vector<float> values;
  const auto add = [&](int64_t first, int64_t count) {
    values.resize(static_cast<size_t>(count));
    model.read_parameter(parameter, first, count, values.data());
    hash = io::checksum_block(values.data(), values.size() * sizeof(float),
                              static_cast<uint64_t>(first), hash);
  };
  if (parameter.numel <= kWholeElements) {
    const int64_t tile = parameter.stored.transposed ? parameter.numel : kTileElements;
    for (int64_t at = 0; at < parameter.numel; at += tile) {
      add(at, std::min(tile, parameter.numel - at));
    }
    return hash;
  }
  const int64_t places = parameter.stored.transposed ? kTransposedPlaces : kPlaces;
  for (int64_t place = 0; place < places; ++place) {
    add((parameter.numel - kElementsAtPlace) / (places - 1) * place, kElementsAtPlace);
  }
  return hash;
}

}  // namespace

std::string frozen_fingerprint(const model::ModelDirectory& model, const model::ModelSpec& spec) {
  std::vector<uint64_t> hashes;
  for (const model::Segment& segment : spec.segments) {
    for (const model::Parameter& parameter : segment.parameters) {
      if (parameter.frozen) hashes.push_back(hash_of(model, parameter));
    }
  }
  if (hashes.empty()) return "";
  return fmt::format("{:016x}",
                     io::checksum_block(hashes.data(), hashes.size() * sizeof(uint64_t), 0, 0));
}

}  // namespace strata::train
