// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "engine/base/error.h"

namespace strata::model {

// Runs `work` and turns its std::filesystem errors into Error (kIo).
template <typename Work>
auto guarded(const std::string& what, const Work& work) {
  try {
    return work();
  } catch (const std::filesystem::filesystem_error& error) {
    throw system_error(ErrorCode::kIo, what, error.code().value());
  }
}

}  // namespace strata::model
