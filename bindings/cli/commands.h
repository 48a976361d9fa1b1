// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/config/json.h"
#include "engine/config/options.h"

// The commands of `strata`. Each returns the exit code when it completes, and otherwise throws
// Error. `deepspeed` says what became of each key of the --deepspeed file, for output as JSON; null
// without such a file.
namespace strata::cli {

int run_init(const config::Options& options);
int run_train(const config::Options& options, const config::Json& deepspeed);
// `command`: the command line that every rank runs.
int run_launch(const config::Options& options, const std::vector<std::string>& command);
int run_eval(const config::Options& options);
int run_plan(const config::Options& options, const config::Json& deepspeed);
int run_export(const config::Options& options);
int run_models(const config::Options& options);
int run_generate(const config::Options& options);
int run_tokenize(const config::Options& options);
int run_report(const config::Options& options);
// Returns 1 when --baseline or --compare-fio finds a slower shape.
int run_bench(const config::Options& options);
int run_bench_link(const config::Options& options);
int run_bench_kernels(const config::Options& options);

}  // namespace strata::cli
