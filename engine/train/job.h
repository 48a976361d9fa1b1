// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/comm/job_server.h"
#include "engine/comm/job_store.h"
#include "engine/train/rank_groups.h"
#include "engine/train/run_plan.h"

namespace strata::train {

// Where the processes of one run on one machine meet.
struct MeetingPlace {
  std::string directory;  // theirs alone, which no other user may enter; gone when all have met
  int rank = 0;
  int ranks = 1;
};

// A run whose ranks are processes of this machine, as this process sees it. Rank 0 checks, measures
// and decides; the others take its terms, so that all make plans from the same facts.
//
// Threads: one, but abort may be called by any. Failure: Error (kPeer with the reason of the rank
// that stopped).
class Job {
 public:
  // Returns when all ranks have come.
  explicit Job(MeetingPlace place);

  int rank() const { return place_.rank; }
  int ranks() const { return place_.ranks; }
  bool leads() const { return place_.rank == 0; }

  struct Terms {
    RunFacts facts;           // limits, machine, free space, tokens, steps
    std::string resume_from;  // a checkpoint; empty: from the model
    int64_t resumed_step = 0;
    std::string run;  // the run's nonce
  };
  void give(const Terms& terms);  // rank 0
  Terms take();                   // all others; waits for rank 0

  // The groups of a run's mesh, which the object owns. All ranks call it once.
  RankGroups join(const plan::Mesh& mesh, const comm::GroupOptions& options);

  void abort(const std::string& reason);

 private:
  const MeetingPlace place_;
  std::unique_ptr<comm::JobServer> server_;  // of rank 0
  std::unique_ptr<comm::JobStore> store_;
  std::unique_ptr<comm::Group> all_;
  std::optional<ProcessGroups> groups_;
};

}  // namespace strata::train
