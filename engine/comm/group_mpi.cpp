// SPDX-License-Identifier: Apache-2.0
#include "engine/comm/group_mpi.h"

#include <fmt/core.h>

#include "engine/base/clock.h"
#include "engine/base/error.h"

namespace strata::comm {
namespace {

// Ranks that read their data may take long; one that ends is noticed.
constexpr double kPatienceS = 24 * 3600;

// Returns when all ranks of the job have come here.
void meet(JobStore& store, const std::string& name) {
  const std::string key = "mpi/" + name;
  if (store.add(key, 1) == store.size()) store.set(key, "all");
  store.get(key, kPatienceS);
}

void require_same_ranks(const JobStore& store, const MpiProcess& mpi) {
  if (mpi.size() == store.size() && mpi.rank() == store.rank()) return;
  throw Error(ErrorCode::kConfig,
              fmt::format("collectives: mpi: this process is rank {} of {} in MPI, and rank {} of "
                          "{} in the job (start all ranks by one command of the MPI that this "
                          "program was built with: mpirun -n {} strata train --collectives mpi)",
                          mpi.rank(), mpi.size(), store.rank(), store.size(), store.size()));
}

}  // namespace

const MpiPlugin* load_mpi_plugin(const std::string& folder, std::string& why) {
  std::vector<std::string> folders;
  if (!folder.empty()) folders.push_back(folder);
  return load_plugin_table<MpiPlugin>(kMpiPlugin, mpi_plugin_build(), folders, why);
}

std::unique_ptr<MpiProcess> start_mpi(JobStore& store, const std::string& folder) {
  std::string why;
  const MpiPlugin* plugin = load_mpi_plugin(folder, why);
  if (plugin == nullptr) {
    throw Error(ErrorCode::kConfig,
                fmt::format("collectives: mpi: {}; or use --collectives tcp", why));
  }
  // The start of MPI may wait for all ranks, and no stop of the job ends that.
  meet(store, "start");
  auto mpi = plugin->start();
  require_same_ranks(store, *mpi);
  return mpi;
}

void finish_mpi(JobStore& store, MpiProcess& mpi) {
  meet(store, "finish");
  mpi.finish();
}

std::unique_ptr<Group> make_mpi_group(JobStore& store, MpiProcess& mpi, ExchangeOptions options) {
  const int rank = find_own_rank(store, options.ranks);
  const std::string key = fmt::format("mpi/{}/number", options.name);
  if (rank == 0) store.set(key, std::to_string(store.add("mpi/groups", 1)));
  const int number = std::stoi(store.get(key, options.connect_s, options.ranks.front()));
  if (number > mpi.number_max()) {
    throw Error(ErrorCode::kDoesNotFit,
                fmt::format("collectives: mpi: {} groups, and this MPI has tags for {} (use "
                            "--collectives tcp)",
                            number, mpi.number_max()));
  }
  auto link = mpi.link({.ranks = options.ranks, .own = rank, .number = number});
  auto group = make_exchange_group(store, options, std::move(link));
  if (rank == 0) store.erase(key);
  return group;
}

}  // namespace strata::comm
