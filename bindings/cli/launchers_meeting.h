// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bindings/cli/launcher.h"

// How the launching processes of several machines agree on the next start of their job: machine 0
// listens, hears from each how its ranks ended, and tells each what comes next.
namespace strata::cli {

// What a machine says before a start. Before the first one, nothing has failed.
struct MachineReport {
  RanksEnd end = {};
  std::string host = {};
  bool is_asked_to_stop = false;
};

// What machine 0 tells another one.
struct MachineAnswer {
  bool starts = false;     // false: it ends
  std::string line = {};   // for its user
  int64_t node = 0;        // its place in this start
  int64_t nodes = 1;       // of this start
  int64_t accumulate = 0;  // 0: as it is given
  bool resumes = false;
  bool changes_ranks = false;
};

struct MeetingOfLaunchers {
  std::string rendezvous;  // of the ranks; launching processes use the port after it
  std::string secret;      // of the job
  int64_t nodes = 1;
  double deadline_s = 300;  // in which all come
  // How often the process was asked to end since the meeting began; looked at once a second.
  std::function<int()> requests = nullptr;
};

using MachineReports = std::vector<std::optional<MachineReport>>;  // by machine; none: it is absent
// The answers for all machines.
using MeetingDecision = std::function<std::vector<MachineAnswer>(const MachineReports&)>;

// Machine 0: waits until all are there, or the deadline. When a report says that the job ends, it
// waits for the others for a minute only. Returns its own answer. A machine that leaves before the
// decision is absent, unless it comes again. At a request to end, the others are answered as if
// machine 0 had reported that it is asked to stop: at once where no rank has run yet, and at a
// second request. Failure: Error (kConfig) where nothing can listen; Error (kInterrupted) after a
// request.
MachineAnswer lead_meeting(const MeetingOfLaunchers& meeting, const MachineReport& own,
                           const MeetingDecision& decide);

// All other machines: waits for machine 0. A machine whose ranks have run, or that was admitted
// before, tries until the deadline, whatever refuses it; one whose report ends the job for a minute
// only, and then ends as it would have. Failure: Error (kConfig) for another secret or number of
// machines; Error (kDeadline) when machine 0 does not come; Error (kInterrupted) at a request.
MachineAnswer attend_meeting(const MeetingOfLaunchers& meeting, int64_t node,
                             const MachineReport& own);

// How many machines a start has, and with which --accumulate.
struct MachineCount {
  int64_t nodes = 0;  // 0: none will do
  int64_t accumulate = 0;
};
struct MachineNeeds {
  int64_t nodes = 1;  // of the job
  int64_t ranks = 1;  // of each
  int64_t accumulate = 1;
  int64_t same_data_ranks = 1;  // tensor ranks times context ranks times pipeline ranks
  int64_t context_ranks = 1;    // which share the state as ranks with other data do
  int64_t shard_ranks = 0;      // 0: all
  int64_t min_ranks = 0;        // 0: all
};
// The most machines of `present` with which a step has the samples that it has with all of them.
MachineCount machines_to_start(int64_t present, const MachineNeeds& needs);

}  // namespace strata::cli
