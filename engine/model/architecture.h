// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/config/json.h"
#include "engine/model/spec.h"

// config.json <-> Architecture -> ModelSpec. Families are rows of a table in family.cpp.
namespace strata::model {

// Reads a Hugging Face config.json in the spellings of Transformers 4 and 5. Throws Error (kConfig)
// that names the member: an unknown architecture, a quantized model, a variant that we do not
// compute, a number that cannot be. `source` is the path for messages.
Architecture read_architecture(const config::Json& json, const std::string& source);

// The same of the file.
Architecture read_architecture_file(const std::string& path);

// Throws Error (kConfig) naming the first number that cannot be: sizes, divisibility, finite
// constants.
void validate(const Architecture& architecture, const std::string& source);

// Units, segments and parameters, with offsets for one shard. The order of the parameters in a
// segment is the order in which one product can use them: q, k, v side by side, gate and up side by
// side.
ModelSpec build_spec(const Architecture& architecture);

// A config.json that Transformers 4 and 5 load.
config::Json write_config(const Architecture& architecture, DType dtype);

// The same config with its weight type replaced, in whichever spelling it has.
config::Json with_dtype(config::Json json, DType dtype);

}  // namespace strata::model
