// SPDX-License-Identifier: Apache-2.0
#include "engine/train/frozen_fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "io/checksum.h"

namespace strata::train {
namespace {

constexpr int64_t kPlaces = 16;
constexpr int64_t kElementsAtPlace = 64;
// Neighbours in a row of a matrix whose transpose is stored lie far from each other in the file.
constexpr int64_t kElementsAtTransposedPlace = 16;

uint64_t hash_of(const model::ModelDirectory& model, const model::Parameter& parameter) {
  const int64_t at_place =
      parameter.stored.transposed ? kElementsAtTransposedPlace : kElementsAtPlace;
  const bool whole = parameter.numel <= kPlaces * at_place;
  const int64_t places = whole ? 1 : kPlaces;
  const int64_t count = whole ? parameter.numel : at_place;
  uint64_t hash = io::checksum_block(parameter.name.data(), parameter.name.size(), 0, 0);
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t place = 0; place < places; ++place) {
    const int64_t first = places == 1 ? 0 : (parameter.numel - count) / (places - 1) * place;
    model.read_parameter(parameter, first, count, values.data());
    hash = io::checksum_block(values.data(), values.size() * sizeof(float),
                              static_cast<uint64_t>(first), hash);
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
