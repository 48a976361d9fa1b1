// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "engine/comm/exchange_group.h"
#include "engine/comm/mpi_plugin.h"

namespace strata::comm {

// The plugin, from `folder`, or from the usual places where that is empty. Null when it cannot be
// used; then `why` says the reason and what to do.
const MpiPlugin* load_mpi_plugin(const std::string& folder, std::string& why);

// Starts MPI in all processes of the job: rank r of the job is rank r of MPI. Returns when all have
// called it. Failure: Error{kConfig} when the plugin cannot be used, or MPI has other ranks than
// the job; Error{kPeer} when the job stops.
std::unique_ptr<MpiProcess> start_mpi(JobStore& store, const std::string& folder);

// Ends MPI when all ranks have called it. Failure: Error{kPeer} when the job stops; then MPI is not
// ended, because that would wait for ranks that are gone.
void finish_mpi(JobStore& store, MpiProcess& mpi);

// A group of exchange_group.h whose ranks exchange by MPI. They agree on its number by the store of
// the job, which outlives the group, as `mpi` does.
std::unique_ptr<Group> make_mpi_group(JobStore& store, MpiProcess& mpi, ExchangeOptions options);

}  // namespace strata::comm
