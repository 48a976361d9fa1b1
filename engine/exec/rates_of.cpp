// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/rates_of.h"

#include <algorithm>

namespace strata::exec {
namespace {

double capped(double rate, double limit) {
  return limit > 0 ? std::min(rate, limit) : rate;
}

double first_of(double one, double other) {
  return one > 0 ? one : other;
}

// A limit stands for a slower drive: one that takes turns when the limiter does.
void set_drive(const config::Machine& machine, const io::RateLimits& limits, plan::Rates& rates) {
  rates.read_bytes_per_s = capped(machine.nvme_read_bytes_per_s, limits.read_bytes_per_s);
  rates.write_bytes_per_s = capped(machine.nvme_write_bytes_per_s, limits.write_bytes_per_s);
  const bool limited = limits.read_bytes_per_s > 0 || limits.write_bytes_per_s > 0;
  rates.half_duplex = limited && limits.half_duplex;
  rates.mixed_bytes_per_s =
      std::min(machine.nvme_mixed_bytes_per_s, rates.read_bytes_per_s + rates.write_bytes_per_s);
  rates.io_latency_s = machine.nvme_latency_s;
  const double checksum_s = machine.checksum_bytes_per_s > 0 ? 1 / machine.checksum_bytes_per_s : 0;
  rates.io_cpu_s_per_byte = machine.cpu_s_per_io_gb * 1e-9 + checksum_s;
}

}  // namespace

plan::Rates best_rates_of(const config::Machine& machine, const RateContext& context) {
  const bool f32 = context.recipe == model::Recipe::kFp32;
  plan::Rates rates;
  set_drive(machine, context.limits, rates);
  rates.io_cpu_s_per_byte = 0;
  rates.io_latency_s = 0;
  rates.matmul_flops_per_s =
      f32 ? machine.matmul_flops_per_s
          : first_of(machine.matmul_bf16_flops_per_s, machine.matmul_flops_per_s);
  rates.memory_bytes_per_s = std::max(machine.memory_bytes_per_s, machine.optimizer_bytes_per_s);
  rates.cores = std::max(1, context.threads);
  rates.shared_cores = machine.device != config::DeviceKind::kCuda;
  rates.shared_speed = std::max(0.5, machine.overlap_speed);  // one after the other is never worse
  if (context.discrete) {
    // Profiles of machines without a device have no link; an emulated one's is a copy in memory.
    const double copy = machine.memory_bytes_per_s / 2;
    rates.upload_bytes_per_s = first_of(machine.upload_bytes_per_s, copy);
    rates.download_bytes_per_s = first_of(machine.download_bytes_per_s, copy);
  }
  // Ranks of one node exchange through its memory, others over the network.
  rates.comm_bytes_per_s = first_of(machine.network_bytes_per_s, machine.memory_bytes_per_s / 2);
  return rates;
}

plan::Rates rates_of(const config::Machine& machine, const RateContext& context) {
  plan::Rates rates = best_rates_of(machine, context);
  set_drive(machine, context.limits, rates);
  const double block = context.recipe == model::Recipe::kFp32 ? machine.step_flops_per_s
                                                              : machine.step_bf16_flops_per_s;
  rates.matmul_flops_per_s =
      first_of(context.compute_flops_per_s, first_of(block, rates.matmul_flops_per_s));
  rates.memory_bytes_per_s = machine.optimizer_bytes_per_s;
  if (machine.overlap_speed > 0) rates.shared_speed = machine.overlap_speed;
  rates.compute_overhead_s = rates.optimizer_overhead_s = machine.op_overhead_s;
  rates.transfer_latency_s = rates.comm_latency_s = machine.op_overhead_s;
  return rates;
}

}  // namespace strata::exec
