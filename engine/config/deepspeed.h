// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/config/config_import.h"

// DeepSpeed JSON files: every key becomes an option of ours, or is ignored or refused with the
// reason. Nothing is dropped silently.
namespace strata::config {

using DeepspeedImport = ConfigImport;

// Reads JSON with comments (//, /* */, #) and trailing commas. train_batch_size counts all `ranks`;
// its factors may come from `given`, in which the last entry for a name counts. Throws Error
// (kConfig) when the text is not such JSON. A key that cannot be followed becomes a line with
// kRefused.
DeepspeedImport import_deepspeed(std::string_view text, const std::string& name, int64_t ranks,
                                 std::span<const GivenOption> given = {});

}  // namespace strata::config
