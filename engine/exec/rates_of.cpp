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

// One rank's part of a rate that the ranks of a node share.
double part_of(double rate, const RateContext& context) {
  return rate / static_cast<double>(context.ranks);
}

// One rank's part of a rate that each device has for itself.
double device_part_of(double rate, const config::Machine& machine, const RateContext& context) {
  if (!config::row_of(machine.device).is_gpu) return part_of(rate, context);
  return rate / static_cast<double>(context.device_ranks);
}

// A rate limit counts as a slower drive; it is half duplex when the limiter is.
void set_drive(const config::Machine& machine, const RateContext& context, plan::Rates& rates) {
  const io::RateLimits& limits = context.limits;
  rates.read_bytes_per_s =
      part_of(capped(machine.nvme_read_bytes_per_s, limits.read_bytes_per_s), context);
  rates.write_bytes_per_s =
      part_of(capped(machine.nvme_write_bytes_per_s, limits.write_bytes_per_s), context);
  const bool limited = limits.read_bytes_per_s > 0 || limits.write_bytes_per_s > 0;
  rates.half_duplex = limited && limits.half_duplex;
  rates.mixed_bytes_per_s = std::min(part_of(machine.nvme_mixed_bytes_per_s, context),
                                     rates.read_bytes_per_s + rates.write_bytes_per_s);
  rates.io_latency_s = machine.nvme_latency_s;
  const double checksum_s = machine.checksum_bytes_per_s > 0 ? 1 / machine.checksum_bytes_per_s : 0;
  rates.io_cpu_s_per_byte = machine.cpu_s_per_io_gb * 1e-9 + checksum_s;
}

// What ranks exchange of a device's memory moves over the link, between ranks, and back, at the
// same time.
double through_host(double rate, const plan::Rates& rates) {
  return std::min({rate, rates.download_bytes_per_s, rates.upload_bytes_per_s});
}

}  // namespace

plan::Rates best_rates_of(const config::Machine& machine, const RateContext& context) {
  const bool f32 = context.recipe == Recipe::kFp32;
  plan::Rates rates;
  set_drive(machine, context, rates);
  rates.io_cpu_s_per_byte = 0;
  rates.io_latency_s = 0;
  rates.matmul_flops_per_s =
      device_part_of(f32 ? machine.matmul_flops_per_s
                         : first_of(machine.matmul_bf16_flops_per_s, machine.matmul_flops_per_s),
                     machine, context);
  const double memory = part_of(machine.memory_bytes_per_s, context);
  rates.memory_bytes_per_s = std::max(memory, part_of(machine.optimizer_bytes_per_s, context));
  rates.cores = std::max(1, context.threads);
  rates.shared_cores = !config::row_of(machine.device).is_gpu;
  rates.shared_speed = std::max(0.5, machine.overlap_speed);  // one after the other is never worse
  if (context.discrete) {
    // Profiles of machines without a device have no link; an emulated one's is a copy in memory.
    const auto link = [&](double rate) {
      return first_of(device_part_of(rate, machine, context), memory / 2);
    };
    rates.device_memory_bytes_per_s =
        first_of(device_part_of(machine.device_memory_bytes_per_s, machine, context), memory);
    rates.upload_bytes_per_s = link(machine.upload_bytes_per_s);
    rates.download_bytes_per_s = link(machine.download_bytes_per_s);
    if (context.peers) {
      rates.comm_peer_bytes_per_s = first_of(
          machine.peer_bytes_per_s, std::min(rates.upload_bytes_per_s, rates.download_bytes_per_s));
    }
  }
  // Ranks of one node exchange through its memory: threads copy a byte once, processes twice.
  rates.comm_within_bytes_per_s = memory / (context.processes ? 4 : 2);
  if (context.nodes > 1) {
    const double network = first_of(machine.network_bytes_per_s, kAssumedNetworkBytesPerS);
    rates.comm_between_bytes_per_s = part_of(network, context);
  }
  return rates;
}

plan::Rates rates_of(const config::Machine& machine, const RateContext& context) {
  plan::Rates rates = best_rates_of(machine, context);
  set_drive(machine, context, rates);
  const double block =
      context.recipe == Recipe::kFp32 ? machine.step_flops_per_s : machine.step_bf16_flops_per_s;
  rates.matmul_flops_per_s =
      first_of(context.compute_flops_per_s / static_cast<double>(context.device_ranks),
               first_of(device_part_of(block, machine, context), rates.matmul_flops_per_s));
  rates.memory_bytes_per_s = part_of(machine.optimizer_bytes_per_s, context);
  if (machine.overlap_speed > 0) rates.shared_speed = machine.overlap_speed;
  rates.compute_overhead_s = rates.optimizer_overhead_s = machine.op_overhead_s;
  // A device has the next op in its queue; on the host a thread must see that one has ended.
  const bool has_queues = context.discrete || config::row_of(machine.device).is_gpu;
  if (has_queues && machine.device_op_overhead_s > 0) {
    rates.compute_overhead_s = machine.device_op_overhead_s;
  }
  rates.transfer_latency_s = rates.comm_within_latency_s = machine.op_overhead_s;
  rates.comm_between_latency_s = first_of(machine.network_latency_s, machine.op_overhead_s);
  if (context.discrete && !context.peers) {
    rates.comm_within_bytes_per_s = through_host(rates.comm_within_bytes_per_s, rates);
    rates.comm_between_bytes_per_s = through_host(rates.comm_between_bytes_per_s, rates);
  }
  return rates;
}

}  // namespace strata::exec
