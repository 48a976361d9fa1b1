// SPDX-License-Identifier: Apache-2.0
#include "engine/train/executor_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/exec/devices.h"

namespace strata::train {
namespace {

// Ranks that wait for a lane with a hanging drive wait longer than the drive's deadline, so that
// the lane reports first what hangs.
constexpr double kMostOfLanesS = 60;
constexpr double kMostOfRanksS = 120;

}  // namespace

comm::GroupOptions group_options(const config::Options& options) {
  return {.deadline_s = static_cast<double>(options.io_deadline) + kMostOfRanksS};
}

io::Backend io_backend_of(config::IoBackend backend) {
  return backend == config::IoBackend::kUring     ? io::Backend::kUring
         : backend == config::IoBackend::kThreads ? io::Backend::kThreads
                                                  : io::Backend::kAuto;
}

exec::ExecutorOptions executor_options(const config::Options& options, const RunPlan& plan,
                                       int rank, const RankGroups& groups) {
  exec::ExecutorOptions executor;
  executor.backend = &kernels::cpu_backend();
  executor.threads = static_cast<int>(plan.threads);
  executor.volume.directories = options.nvme;
  executor.volume.weights = plan.nvme_weights;
  executor.volume.owner = "strata";
  if (options.ranks > 1) executor.volume.lock_name = fmt::format("strata.rank{}.lock", rank);
  executor.io_backend = io_backend_of(options.io);
  const auto part = [&](int64_t rate) {  // ranks of a machine share its drives
    return static_cast<double>(rate) / static_cast<double>(plan.ranks_on_node);
  };
  executor.rates = {.read_bytes_per_s = part(options.nvme_rate.read_bytes_per_s),
                    .write_bytes_per_s = part(options.nvme_rate.write_bytes_per_s),
                    .half_duplex = true};
  executor.io_deadline_s = static_cast<double>(options.io_deadline);
  executor.deadline_s = executor.io_deadline_s + kMostOfLanesS;
  executor.groups = groups.lanes;
  if (kernels::has_queues(plan.input.device)) {
    const int64_t local_rank = rank % plan.ranks_on_node;
    const exec::DeviceRequest request = {
        .kind = config::kind_of(options.device),
        .index = static_cast<int>(options.device_index >= 0 ? options.device_index : local_rank),
        .interior = plan.input.device.interior,
        .threads = executor.threads,
        .plugin_path = options.plugin_path};
    executor.open_device = [request] { return exec::open_device(request); };
  }
  return executor;
}

namespace {

// Of rows of `shape.whole_length()` elements, those of its part of each.
void take_part(const model::BatchShape& shape, const std::vector<int32_t>& whole, int32_t* to) {
  for (int64_t row = 0; row < shape.rows; ++row) {
    for (int64_t i = 0; i < shape.length; ++i) {
      const int64_t at = row * shape.whole_length() + shape.context.position(i, shape.length);
      *to++ = whole[static_cast<size_t>(at)];
    }
  }
}

// One micro-batch of a context rank, which has a part of every sequence.
void fill_part(const data::Batches& batches, const plan::Plan& plan, int64_t step, int micro_batch,
               int32_t* tokens, int32_t* targets, int32_t* starts) {
  const model::BatchShape& shape = plan.shape;
  const auto count = static_cast<size_t>(shape.tokens() * shape.context.ranks);
  std::vector<int32_t> all_tokens(count), all_targets(count);
  std::vector<int32_t> all_starts(starts == nullptr ? 0 : count);
  batches.fill(step, micro_batch, plan.mesh.batch_rank(), all_tokens.data(), all_targets.data(),
               starts == nullptr ? nullptr : all_starts.data());
  take_part(shape, all_tokens, tokens);
  take_part(shape, all_targets, targets);
  if (starts != nullptr) take_part(shape, all_starts, starts);
}

}  // namespace

void fill_instance(const data::Batches& batches, const plan::Plan& plan, int64_t step,
                   exec::Instance& instance) {
  const int64_t targets = plan.shape.tokens();
  const int64_t tokens = targets * (plan.shape.documents ? 2 : 1);  // with where these start
  instance.tokens.resize(static_cast<size_t>(tokens * plan.micro_batches));
  instance.targets.resize(static_cast<size_t>(targets * plan.micro_batches));
  for (int m = 0; m < plan.micro_batches; ++m) {
    int32_t* of_micro_batch = instance.tokens.data() + tokens * m;
    int32_t* of_targets = instance.targets.data() + targets * m;
    int32_t* starts = plan.shape.documents ? of_micro_batch + targets : nullptr;
    if (plan.mesh.context == 1) {
      batches.fill(step, m, plan.mesh.batch_rank(), of_micro_batch, of_targets, starts);
    } else {
      fill_part(batches, plan, step, m, of_micro_batch, of_targets, starts);
    }
  }
  instance.target_count = std::max<int64_t>(1, batches.target_count(step));
}

}  // namespace strata::train
