// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace strata::exec {
namespace {

// Divides the frequency of long waves by `factor`, keeps short waves, and blends between them.
float llama3_frequency(const model::Rope& rope, float frequency) {
  const double original = static_cast<double>(rope.original_max_position);
  const double wave_length = 2.0 * std::numbers::pi / frequency;
  const double smooth = (original / wave_length - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  if (wave_length > original / rope.low_freq_factor) {
    return static_cast<float>(frequency / rope.factor);
  }
  if (wave_length < original / rope.high_freq_factor) return frequency;
  return static_cast<float>((1.0 - smooth) * frequency / rope.factor + smooth * frequency);
}

// The pairs between which yarn blends, from unchanged frequencies to divided ones.
struct YarnRamp {
  double low, high;
};

YarnRamp yarn_ramp(const model::Rope& rope, int64_t head_size) {
  // The pair that rotates `turns` times within the original positions.
  const auto pair_of = [&](double turns) {
    const double positions = static_cast<double>(rope.original_max_position);
    return static_cast<double>(head_size) * std::log(positions / (turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.theta));
  };
  double low = pair_of(rope.beta_fast);
  double high = pair_of(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(head_size - 1));
  return {low, low == high ? high + 0.001 : high};
}

float yarn_frequency(const model::Rope& rope, const YarnRamp& ramp, float power, size_t pair) {
  const float along = (static_cast<float>(pair) - static_cast<float>(ramp.low)) /
                      static_cast<float>(ramp.high - ramp.low);
  const float slowed = std::clamp(along, 0.0f, 1.0f);
  const float interpolated = 1.0f / (static_cast<float>(rope.factor) * power);
  const float stays = 1.0f - slowed;
  return interpolated * (1.0f - stays) + 1.0f / power * stays;
}

// Frequency of each pair of a head.
std::vector<float> frequencies_of(const model::Rope& rope, int64_t head_size, int64_t length) {
  const bool beyond = length > rope.original_max_position;
  std::vector<float> frequencies(static_cast<size_t>(head_size / 2));
  const YarnRamp ramp =
      rope.scaling == model::RopeScaling::kYarn ? yarn_ramp(rope, head_size) : YarnRamp{};
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_size);
    const float power = static_cast<float>(std::pow(rope.theta, static_cast<double>(exponent)));
    const float frequency = 1.0f / power;
    switch (rope.scaling) {
      case model::RopeScaling::kNone:
        frequencies[i] = frequency;
        break;
      case model::RopeScaling::kLinear:
        frequencies[i] = static_cast<float>(frequency / rope.factor);
        break;
      case model::RopeScaling::kLlama3:
        frequencies[i] = llama3_frequency(rope, frequency);
        break;
      case model::RopeScaling::kYarn:
        frequencies[i] = yarn_frequency(rope, ramp, power, i);
        break;
      case model::RopeScaling::kLongRope:
        frequencies[i] =
            1.0f / (static_cast<float>((beyond ? rope.long_factor : rope.short_factor)[i]) * power);
        break;
    }
  }
  return frequencies;
}

}  // namespace

std::vector<float> rope_values(const model::Rope& rope, int64_t head_size, int64_t length) {
  const auto frequencies = frequencies_of(rope, rope.rotary > 0 ? rope.rotary : head_size, length);
  const float factor = static_cast<float>(rope.attention_factor);
  const size_t half = frequencies.size() * static_cast<size_t>(length);
  std::vector<float> values(2 * half);
  size_t next = 0;
  for (int64_t position = 0; position < length; ++position) {
    for (const float frequency : frequencies) {
      const double angle = static_cast<double>(static_cast<float>(position) * frequency);
      values[next] = static_cast<float>(std::cos(angle)) * factor;
      values[half + next++] = static_cast<float>(std::sin(angle)) * factor;
    }
  }
  return values;
}

std::vector<float> rope_values(const model::Architecture& a, int table,
                               const model::BatchShape& shape) {
  const int64_t length = shape.is_cached() ? shape.positions() : shape.whole_length();
  const std::vector<float> whole =
      rope_values(table == 1 ? *a.window_rope : a.rope, a.head_size, length);
  if (shape.context.ranks == 1) return whole;
  const int64_t pairs = model::rope_pairs(a, table);
  std::vector<float> own;
  for (const int64_t first : {int64_t{0}, length * pairs}) {  // of cosines, of sines
    for (int64_t token = 0; token < shape.length; ++token) {
      const int64_t at = first + shape.context.position(token, shape.length) * pairs;
      own.insert(own.end(), whole.begin() + at, whole.begin() + at + pairs);
    }
  }
  return own;
}

}  // namespace strata::exec
