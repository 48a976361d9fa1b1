// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "engine/config/config_import.h"

namespace strata::config {

// Reads a file that the configuration names: LLaMA-Factory's dataset_info.json. Throws Error.
using ReadNamedFile = std::function<std::string(const std::string& path)>;

// Reads a YAML configuration of Axolotl, LLaMA-Factory, mlx-lm or TRL, which its keys tell apart.
// Throws Error (kConfig) when the text is not YAML, or is of none of these. A key that cannot be
// followed becomes a line with kRefused.
ConfigImport import_foreign(std::string_view text, const std::string& name,
                            const ReadNamedFile& read, std::span<const GivenOption> given = {});

}  // namespace strata::config
