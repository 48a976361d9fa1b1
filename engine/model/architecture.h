// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/config/json.h"
#include "engine/model/spec.h"

// config.json <-> Architecture -> ModelSpec. Families are rows of a table in family.cpp.
namespace strata::model {

// Reads a Hugging Face config.json in the spellings of Transformers 4 and 5. Throws Error (kConfig)
// that names the member for an unknown architecture, a quantized model, a variant that we do not
// compute, or an impossible number. `source` is the path for messages.
Architecture read_architecture(const config::Json& json, const std::string& source);

// Reads the file at `path`.
Architecture read_architecture_file(const std::string& path);

// Throws Error (kConfig) that names the first impossible number: sizes, divisibility, finite
// constants.
void validate(const Architecture& architecture, const std::string& source);

// Builds units, segments and parameters, with offsets for one shard. Within a segment, parameters
// that one product can use are adjacent: q, k and v, and gate and up.
ModelSpec build_spec(const Architecture& architecture);

// Returns a config.json that Transformers 4 and 5 load.
config::Json write_config(const Architecture& architecture, DType dtype);

// Returns the config with its weight type replaced, in the spelling that it has.
config::Json with_dtype(config::Json json, DType dtype);

}  // namespace strata::model
