// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/frozen_fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/model_files/read_ahead.h"
#include "engine/model_files/transfer_buffer.h"
#include "io/checksum.h"

namespace strata::checkpoint {
namespace {

constexpr int64_t kTileElements = int64_t{64} << 10;
// Elements read at once from a matrix whose transpose is stored: many rows, because each row is
// spread over the whole stored matrix.
constexpr int64_t kTurnedElements = int64_t{4} << 20;
constexpr int64_t kLoggedBytes = 4 * kGiB;  // reading more takes seconds and is logged

using Parameters = std::vector<const model::Parameter*>;

Parameters frozen_parameters(const model::ModelSpec& spec) {
  Parameters frozen;
  for (const model::Segment& segment : spec.segments) {
    for (const model::Parameter& parameter : segment.parameters) {
      if (parameter.frozen) frozen.push_back(&parameter);
    }
  }
  return frozen;
}

uint64_t hash_of(std::string_view text) {
  return io::checksum_block(text.data(), text.size(), 0, 0);
}

// Includes the parameters' names, because the same files have another hash when other parameters
// are frozen.
std::string files_of(const model::ModelDirectory& model, const Parameters& frozen) {
  std::string text;
  for (const model::File& file : model.files()) text += file.identity() + "\n";
  for (const model::Parameter* parameter : frozen) text += parameter->name + "\n";
  return fmt::format("{:016x}", hash_of(text));
}

int64_t tile_of(const model::Parameter& parameter) {
  if (!parameter.stored.transposed) return kTileElements;
  const int64_t inputs = parameter.shape[1];
  return std::max<int64_t>(1, kTurnedElements / inputs) * inputs;
}

uint64_t hash_of(const model::ModelDirectory& model, const model::Parameter& parameter,
                 model::ReadAhead& ahead, std::vector<float>& values) {
  uint64_t hash = hash_of(parameter.name);
  const int64_t tile = tile_of(parameter);
  for (int64_t first = 0; first < parameter.numel; first += tile) {
    const int64_t count = std::min(tile, parameter.numel - first);
    if (static_cast<int64_t>(values.size()) < count) values.resize(static_cast<size_t>(count));
    model.read_parameter(parameter, first, count, {.master = values.data()}, &ahead);
    hash = io::checksum_block(values.data(), static_cast<uint64_t>(count) * sizeof(float),
                              static_cast<uint64_t>(first), hash);
  }
  return hash;
}

void log_reading(const model::ModelDirectory& model, const Parameters& frozen) {
  int64_t bytes = 0;
  for (const model::Parameter* parameter : frozen) bytes += model.stored_range(*parameter).bytes;
  if (bytes < kLoggedBytes) return;
  log(LogLevel::kInfo,
      fmt::format("frozen weights: reading all {} to record their checksums", format_bytes(bytes)));
}

}  // namespace

FrozenFingerprint frozen_fingerprint(const model::ModelDirectory& model,
                                     const model::ModelSpec& spec, const FrozenFingerprint& known) {
  const Parameters frozen = frozen_parameters(spec);
  if (frozen.empty()) return {};
  // The files are identified before they are read, so a change while they are read is noticed next
  // time.
  FrozenFingerprint found = {.hash = "", .files = files_of(model, frozen)};
  if (found.files == known.files) return known;
  log_reading(model, frozen);
  model::ReadAhead ahead(model, model::transfer_buffer_bytes(spec));
  std::vector<float> values;
  std::vector<uint64_t> hashes;
  const auto expect = [&](size_t k) {
    const model::ReadAhead::Part whole = {frozen[k], 0, frozen[k]->numel};
    ahead.expect({&whole, 1});
  };
  expect(0);
  for (size_t k = 0; k < frozen.size(); ++k) {
    if (k + 1 < frozen.size()) expect(k + 1);
    hashes.push_back(hash_of(model, *frozen[k], ahead, values));
    ahead.finish();
  }
  found.hash = fmt::format(
      "{:016x}", io::checksum_block(hashes.data(), hashes.size() * sizeof(uint64_t), 0, 0));
  return found;
}

}  // namespace strata::checkpoint
