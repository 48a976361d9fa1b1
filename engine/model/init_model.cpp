// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "engine/base/rng.h"
#include "engine/model/architecture.h"
#include "engine/model/model_writer.h"

namespace strata::model {
namespace {

constexpr double kStandardDeviation = 0.02;
constexpr int64_t kTileElements = int64_t{1} << 16;

// FNV-1a, so that each parameter has random numbers of its own.
uint64_t hash_of(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

// Box and Muller: two normal numbers of two uniform ones.
float normal_at(const Philox& random, uint64_t stream, int64_t index) {
  const auto x = random.at(static_cast<uint64_t>(index / 2), stream);
  const double radius = std::sqrt(-2.0 * std::log((x[0] + 1.0) * 0x1.0p-32));
  const double angle = 2.0 * std::numbers::pi * x[1] * 0x1.0p-32;
  return static_cast<float>(kStandardDeviation * radius *
                            (index % 2 == 0 ? std::cos(angle) : std::sin(angle)));
}

}  // namespace

void init_model(const Architecture& architecture, uint64_t seed,
                const ModelWriterOptions& options) {
  validate(architecture, "new model");
  const ModelSpec spec = build_spec(architecture);
  ModelWriter writer(spec, write_config(architecture, options.dtype), options);
  const Philox random(seed);
  std::vector<float> tile(static_cast<size_t>(kTileElements));
  for (const Segment& segment : spec.segments) {
    for (const Parameter& parameter : segment.parameters) {
      const uint64_t stream = hash_of(parameter.name);
      const bool matrix = parameter.shape.size() >= 2;
      const float constant = parameter.role == ParameterRole::kNorm ? 1.0f : 0.0f;
      for (int64_t first = 0; first < parameter.numel; first += kTileElements) {
        const int64_t count = std::min(kTileElements, parameter.numel - first);
        for (int64_t i = 0; i < count; ++i) {
          tile[static_cast<size_t>(i)] = matrix ? normal_at(random, stream, first + i) : constant;
        }
        writer.write(parameter, first, count, tile.data());
      }
    }
  }
  writer.finish();
}

}  // namespace strata::model
