// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/config/limits.h"
#include "engine/train/run_plan.h"

// What ranks that are processes tell each other before they plan, as JSON.
namespace strata::train {

// What each rank tells rank 0 of its machine.
struct NodeFacts {
  std::string host;
  std::string processors;  // that the process may use: '1' at the place of each; empty: not known
  config::Limits limits;
  int64_t host_budget = 0;        // of a run: --host-memory, or a share of what is usable
  bool host_is_share = false;     // the latter
  int64_t nvme_free_bytes = 0;    // of all directories together
  int64_t device_free_bytes = 0;  // of the rank's GPU; 0: it uses none
  // By what it can send others memory, "NCCL 2.28.3"; empty: it cannot.
  std::string peers = {};
};
std::string to_text(const NodeFacts& node);
NodeFacts parse_node(const std::string& text);  // Error (kConfig) when another build wrote it

// Adds what another rank of the machine says: starters may give each rank processors of its own.
void add_rank(const NodeFacts& rank, NodeFacts& node);

// Sets limits and free space to the least of all machines: plans are the same on each. Returns a
// line about that; empty with one machine.
std::string take_least(std::span<const NodeFacts> nodes, RunFacts& facts);

// What rank 0 has found, from which all ranks make their plans.
struct JobTerms {
  RunFacts facts;           // limits, machine, free space, tokens, steps
  std::string resume_from;  // a checkpoint; empty: from the model
  int64_t resumed_step = 0;
  bool lacks_evaluation = false;  // of that step, which is the last
  std::string run;                // the run's nonce
  std::string weights;            // what distinguishes those that rank 0 begins with
  std::string data;               // about_data() of what rank 0 has read
  std::string options;            // as config::to_json() writes them
};
std::string to_text(const JobTerms& terms);
JobTerms parse_terms(const std::string& text);  // Error (kConfig) when another build wrote it

}  // namespace strata::train
