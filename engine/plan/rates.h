// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "engine/base/node_ranks.h"
#include "engine/plan/op.h"

namespace strata::plan {

// The machine's rates for the planner, the simulator and the lower bound. A rate of zero means that
// the machine does not have the resource; a plan that uses it anyway is a bug.
struct Rates {
  // The drive, or all striped drives together. Half duplex: reads and writes take turns. Otherwise
  // both directions move at once, at `mixed_bytes_per_s` together, in the proportion of their
  // single rates (zero: each direction always has its single rate).
  double read_bytes_per_s = 0;
  double write_bytes_per_s = 0;
  bool half_duplex = true;
  double mixed_bytes_per_s = 0;
  double io_latency_s = 0;  // after the last byte, until the completion is seen

  double matmul_flops_per_s = 0;
  double compute_overhead_s = 0;  // of each compute op, and of each update on a discrete device
  double memory_bytes_per_s = 0;
  double optimizer_overhead_s = 0;  // of each op on the optimizer lane

  // Compute and optimizer on the same cores: while both are busy, each runs at `shared_speed`.
  bool shared_cores = true;
  double shared_speed = 0.5;
  int cores = 1;
  double io_cpu_s_per_byte = 0;  // core time for moving a byte, taken from compute and optimizer

  // A discrete device's memory bandwidth, for updates there. While compute and updates are both
  // busy on it, each runs at `device_shared_speed`: 0.5 is as if they took turns.
  double device_memory_bytes_per_s = 0;
  double device_shared_speed = 0.5;
  double upload_bytes_per_s = 0;
  double download_bytes_per_s = 0;
  double transfer_latency_s = 0;  // of each upload and download
  // What a rank sends to ranks of its machine, and to those of others: its share of the network.
  double comm_within_bytes_per_s = 0;
  double comm_between_bytes_per_s = 0;
  double comm_within_latency_s = 0;  // of each exchange
  double comm_between_latency_s = 0;
  // What its device sends to those of its machine, without the host; 0: the host exchanges what
  // lies on devices, too.
  double comm_peer_bytes_per_s = 0;
  // What a machine's ranks share moves while pieces come from others. `device`: it lies there.
  double exchange_s(double within, double between, bool device) const {
    const double own =
        device && comm_peer_bytes_per_s > 0 ? comm_peer_bytes_per_s : comm_within_bytes_per_s;
    return std::max(within > 0 ? within / own : 0,
                    between > 0 ? between / comm_between_bytes_per_s : 0);
  }
  // With the latency.
  double exchange_s(const SentBytes& sent, bool device) const {
    return exchange_s(static_cast<double>(sent.within), static_cast<double>(sent.between), device) +
           (sent.between > 0 ? comm_between_latency_s : comm_within_latency_s);
  }
};

}  // namespace strata::plan
