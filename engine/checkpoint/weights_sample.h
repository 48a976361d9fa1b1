// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/model_files/model_directory.h"

namespace strata::checkpoint {

// A hash, as 16 hexadecimal digits, of some KiB from the middle of every weight as it is stored:
// enough to distinguish a model from one that was trained further. It does not depend on how files
// are named and divided. Threads: any. Failure: Error (kIo).
std::string weights_sample(const model::ModelDirectory& model);

}  // namespace strata::checkpoint
