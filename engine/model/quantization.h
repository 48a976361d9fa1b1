// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/config/json.h"

// Quantized weights: the method that can be read, and advice for the others.
namespace strata::model {

// FP8 weights (F8_E4M3) with one scale for each block of a matrix, as DeepSeek publishes them:
// weight = f8 * scale, in f32. The scales of NAME.weight are NAME.weight_scale_inv, with
// ceil(rows / block rows) * ceil(columns / block columns) elements.
struct Fp8Blocks {
  int64_t rows = 0;
  int64_t cols = 0;
};

inline constexpr const char* kScaleSuffix = "_scale_inv";  // appended to the name of the weight

// Reads "quantization_config" of a config.json; nullopt when it is absent. Throws Error (kConfig)
// that names the method unless it is block FP8.
std::optional<Fp8Blocks> read_quantization(const config::Json& json, const std::string& source);

// Returns the config without that member: the config of the same model with unquantized weights.
config::Json without_quantization(config::Json json);

}  // namespace strata::model
