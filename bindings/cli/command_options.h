// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/config/options.h"

namespace strata::cli {

// The options of a command line. `prints`: warnings, and what became of the keys of a DeepSpeed
// file, beside the command's output unless the output is JSON, which includes it. When keys are
// refused, that is printed in any case before the error; as JSON it is then the only output.
config::Options resolved_options(config::Command command, const std::vector<std::string>& args,
                                 bool prints, config::DeepspeedReport& report);

}  // namespace strata::cli
