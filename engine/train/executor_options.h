// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/comm/group.h"
#include "engine/config/options.h"
#include "engine/data/batch.h"
#include "engine/exec/executor.h"
#include "engine/train/rank_groups.h"
#include "engine/train/run_plan.h"

namespace strata::train {

// How long ranks wait for each other.
comm::GroupOptions group_options(const config::Options& options);

io::Backend io_backend_of(config::IoBackend backend);

exec::ExecutorOptions executor_options(const config::Options& options, const RunPlan& plan,
                                       int rank, const RankGroups& groups);

// Fills in all micro-batches of one rank's step; steps are counted from 0.
void fill_instance(const data::Batches& batches, const plan::Plan& plan, int64_t step,
                   exec::Instance& instance);

}  // namespace strata::train
