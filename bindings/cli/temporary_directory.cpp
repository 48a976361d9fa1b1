// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/temporary_directory.h"

#include <stdlib.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "engine/base/error.h"

namespace strata::cli {

std::string temporary_base() {
  const char* base = std::getenv("TMPDIR");
  return base != nullptr && *base != 0 ? base : "/tmp";
}

TemporaryDirectory::TemporaryDirectory(const std::string& purpose)
    : path_(temporary_base() + "/strata-" + purpose + "-XXXXXX") {
  if (mkdtemp(path_.data()) != nullptr) return;
  throw system_error(ErrorCode::kConfig, "cannot create temporary directory: " + path_, errno,
                     "set TMPDIR to a directory that this user may write");
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace strata::cli
