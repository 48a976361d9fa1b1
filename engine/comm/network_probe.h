// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/comm/group.h"

namespace strata::comm {

struct NetworkFigures {
  double bytes_per_s = 0;  // that each machine sends to the others while all of them do
  double latency_s = 0;    // of a gather that moves nearly nothing
};

// As the gathers of a group on several machines reach them: the best of some. All ranks call it
// together, and get the same; `ranks_on_node` of them follow each other on each of the machines.
// Takes about two seconds where a machine sends less than 40 MB/s; a rank allocates at most 32 MiB.
NetworkFigures measure_network(Group& group, int ranks_on_node);

}  // namespace strata::comm
