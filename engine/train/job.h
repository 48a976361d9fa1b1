// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/comm/group.h"
#include "engine/comm/group_mpi.h"
#include "engine/comm/job_server.h"
#include "engine/comm/job_store.h"
#include "engine/comm/network_probe.h"
#include "engine/config/options.h"
#include "engine/train/job_terms.h"
#include "engine/train/meeting_directory.h"
#include "engine/train/rank_groups.h"

namespace strata::train {

// Where the processes of one run meet, and which of them this is. All machines have equally many
// ranks, and the ranks of a machine follow each other.
struct MeetingPlace {
  // On one machine: a directory of theirs alone, which no other user may enter; it need not exist
  // yet. Gone when all have met.
  std::string directory = {};
  // Where no directory is given: HOST:PORT, at which rank 0 listens, and the job's secret.
  std::string address = {};
  std::string secret = {};
  // The caller's own network, for data and for rank 0's address and secret. Then the address is
  // where rank 0 listens, a port of 0 lets the system choose one, and both may be left out.
  comm::LendTransport lend = nullptr;
  // An interface of this machine, or its address, for the data; empty: the one that reaches rank 0.
  std::string interface = {};
  int rank = 0;
  int ranks = 1;
  int ranks_on_node = 1;
  int launcher = 0;         // the parent process, whose end ends the run; 0: any may be the parent
  double deadline_s = 300;  // in which all come
  config::Collectives collectives = config::Collectives::kTcp;
  std::string plugin_path = {};  // the folder of plugins; empty: the usual places
};

// A run whose ranks are processes, of one machine or several, as this process sees it. Rank 0
// checks, measures and decides; the others take its terms, so that all make plans from the same
// facts.
//
// Threads: one, but abort may be called by any. Failure: Error (kPeer with the reason of the rank
// that stopped; kDeadline names ranks that do not come).
class Job {
 public:
  // Returns when rank 0 is there.
  explicit Job(MeetingPlace place);
  // Where ranks exchange by MPI, waits until all have come to their end, unless the job has
  // stopped.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int rank() const { return place_.rank; }
  int ranks() const { return place_.ranks; }
  int ranks_on_node() const { return place_.ranks_on_node; }
  int nodes() const { return ranks() / ranks_on_node(); }
  bool leads() const { return place_.rank == 0; }

  // All ranks call it first. On rank 0 it waits for all of them, and returns their machines; for
  // others, it returns at once. Throws Error (kConfig) on a rank that does not see the directory
  // `shared` of rank 0, which need not exist yet, and where ranks exchange by MPI and cannot.
  std::vector<NodeFacts> meet(const NodeFacts& here, const std::string& shared);

  // The network between the machines, by what the run's ranks exchange by; zeros with one machine,
  // and where rank 0 does not want it. All ranks call it when they have met.
  comm::NetworkFigures measure_network(bool is_wanted, const comm::GroupOptions& options);

  void give(const JobTerms& terms);  // rank 0
  JobTerms take();                   // all others; waits for rank 0
  // All ranks call it at the end of the run and wait there for each other, and for rank 0 to write
  // the model. So whoever starts ranks again has all of them, also when one fails there. Throws
  // Error (kPeer) on all where the run was stopped before its last step and a launching process is
  // gone, which is why.
  void end(bool was_stopped);

  // The groups of a run's mesh, which the object owns. All ranks call it once, and have met when it
  // returns.
  RankGroups join(const plan::Mesh& mesh, const comm::GroupOptions& options,
                  double connect_s = kPatienceS);

  void abort(const std::string& reason);

 private:
  std::string name_of(int node, const std::string& host) const;
  void open_server();
  std::unique_ptr<comm::JobStore> find_server();
  std::vector<int> all_ranks() const;
  Invitation pass_on(const Invitation& own);
  std::vector<NodeFacts> await_all(const NodeFacts& own);
  void start_collectives();
  std::unique_ptr<comm::Group> connect(comm::ExchangeOptions group);

  const MeetingPlace place_;
  std::unique_ptr<comm::JobServer> server_;     // of rank 0
  Invitation own_;                              // to it
  std::optional<PostedInvitation> invitation_;  // of rank 0, until all have met
  std::unique_ptr<comm::JobStore> store_;
  std::unique_ptr<comm::MpiProcess> mpi_;  // where ranks exchange by it
  std::unique_ptr<comm::Transport> lent_;  // of channel 0, until join()
  std::unique_ptr<comm::Group> measured_;  // of all ranks, which becomes the trainer's
  std::optional<ProcessGroups> groups_;
};

}  // namespace strata::train
