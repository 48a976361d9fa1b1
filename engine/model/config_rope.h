// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/config/json.h"
#include "engine/model/config_fields.h"
#include "engine/model/family.h"
#include "engine/model/spec.h"

// RoPE in config.json, in its three spellings: rope_theta and rope_scaling (Transformers 4),
// rope_parameters (5), and rope_parameters by layer type.
namespace strata::model {

// Sets `rope` and, for families that have one, `window_rope`. `max_position` must be set already.
void read_ropes(const Fields& fields, const Family& family, Architecture& result);

// Throws Error (kConfig) that names the first impossible number.
void validate_rope(const Rope& rope, int64_t head_size, const std::string& source);

// "default, linear, llama3": for messages.
std::string rope_scaling_names();

// Writes the spelling of version 4 when it can express the values, otherwise that of version 5.
void write_ropes(const Architecture& architecture, config::Json& json);

}  // namespace strata::model
