// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <mutex>

#include "engine/comm/mpi_plugin.h"

namespace strata::comm {

// The communicator of all groups, and the lock under which every call of MPI is made: calls that do
// not wait need no more of MPI than MPI_THREAD_SERIALIZED.
struct MpiCalls {
  MPI_Comm comm = MPI_COMM_NULL;
  std::mutex mu;
};

// Throws Error{kPeer} with MPI's own words, unless `code` is MPI_SUCCESS.
void check_mpi(const char* call, int code);

// `calls` outlives the transport.
std::unique_ptr<Transport> make_mpi_transport(MpiCalls& calls, const MpiLink& options);

}  // namespace strata::comm
