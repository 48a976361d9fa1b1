// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "engine/base/rng.h"
#include "engine/model/architecture.h"
#include "engine/model_files/model_writer.h"

namespace strata::model {
namespace {

constexpr double kStandardDeviation = 0.02;
constexpr int64_t kInitElements = int64_t{1} << 16;

// FNV-1a of a parameter's name, which gives each parameter a random stream of its own.
uint64_t hash_of(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

// Fills elements [first, first + count) of a stream. `first` is even, because the method of Box and
// Muller makes two normal numbers from two uniform ones.
void fill_normal(const Philox& random, uint64_t stream, int64_t first, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += 2) {
    const auto x = random.at(static_cast<uint64_t>((first + i) / 2), stream);
    const double radius = kStandardDeviation * std::sqrt(-2.0 * std::log((x[0] + 1.0) * 0x1.0p-32));
    const double angle = 2.0 * std::numbers::pi * x[1] * 0x1.0p-32;
    out[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < count) out[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
}

}  // namespace

void init_model(const Architecture& architecture, uint64_t seed, const ModelWriterOptions& options,
                const std::vector<NamedContents>& files) {
  validate(architecture, "new model");
  const ModelSpec spec = build_spec(architecture);
  ModelWriter writer(spec, write_config(architecture, options.dtype.value_or(DType::kF32)),
                     options);
  for (const NamedContents& file : files) writer.add_file(file.name, file.contents);
  const Philox random(seed);
  std::vector<float> tile(static_cast<size_t>(kInitElements));
  for (const Segment& segment : spec.segments) {
    for (const Parameter& parameter : segment.parameters) {
      const uint64_t stream = hash_of(parameter.name);
      for (int64_t first = 0; first < parameter.numel; first += kInitElements) {
        const int64_t count = std::min(kInitElements, parameter.numel - first);
        if (parameter.shape.size() >= 2) {
          fill_normal(random, stream, first, count, tile.data());
        } else {
          const bool one = is_norm(parameter.role) && !architecture.block.norm_offset;
          std::fill(tile.begin(), tile.end(), one ? 1.0f : 0.0f);
        }
        writer.write(parameter, first, count, tile.data());
      }
    }
  }
  writer.finish();
}

}  // namespace strata::model
