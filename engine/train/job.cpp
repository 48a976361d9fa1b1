// SPDX-License-Identifier: Apache-2.0
#include "engine/train/job.h"

#include "engine/base/check.h"
#include "engine/comm/text_exchange.h"

namespace strata::train {
namespace {

using config::Json;

// Rank 0 may tokenize for long. Ranks that end are noticed at once.
constexpr double kPatienceS = 24 * 3600;

// The members of the terms that are numbers.
template <typename Terms, typename Visit>
void each_number(Terms& terms, Visit visit) {
  auto& facts = terms.facts;
  visit("cores", facts.limits.cores);
  visit("memory_total", facts.limits.memory_total_bytes);
  visit("memory_available", facts.limits.memory_available_bytes);
  visit("nvme_free", facts.nvme_free_bytes);
  visit("data", facts.data_bytes);
  visit("steps", facts.steps);
  visit("resumed_step", terms.resumed_step);
}

template <typename Terms, typename Visit>
void each_limit(Terms& terms, Visit visit) {
  visit("cgroup_limit", terms.facts.limits.cgroup_limit_bytes);
  visit("cgroup_free", terms.facts.limits.cgroup_free_bytes);
  visit("memlock", terms.facts.limits.memlock_bytes);
  visit("address_space", terms.facts.limits.address_space_bytes);
}

const Json& member(const Json& json, const char* name) {
  const Json* found = json.find(name);
  STRATA_CHECK(found != nullptr);  // both sides are this build
  return *found;
}

}  // namespace

Job::Job(MeetingPlace place)
    : place_(std::move(place)),
      all_(meet(place_, "job", {.size = place_.ranks}, {.deadline_s = kPatienceS})) {}

void Job::give(const Terms& terms) {
  Json json = Json::object();
  each_number(terms, [&](const char* name, int64_t value) { json.set(name, value); });
  each_limit(terms, [&](const char* name, const std::optional<int64_t>& value) {
    json.set(name, value ? Json(*value) : Json());
  });
  json.set("machine", config::to_toml(terms.facts.machine));
  json.set("machine_name", terms.facts.machine.name);
  json.set("resume_from", terms.resume_from);
  json.set("run", terms.run);
  comm::broadcast_text(all_.get(), json.dump());
}

Job::Terms Job::take() {
  const Json json = Json::parse(comm::broadcast_text(all_.get(), ""), "terms of rank 0");
  Terms terms;
  each_number(terms,
              [&](const char* name, int64_t& value) { value = *member(json, name).int64(); });
  each_limit(terms, [&](const char* name, std::optional<int64_t>& value) {
    value = member(json, name).int64();
  });
  terms.facts.machine = config::parse_machine(member(json, "machine").string(),
                                              member(json, "machine_name").string());
  terms.resume_from = member(json, "resume_from").string();
  terms.run = member(json, "run").string();
  return terms;
}

RankGroups Job::join(const plan::Mesh& mesh, const comm::GroupOptions& options) {
  groups_.emplace(place_, mesh, options);
  return groups_->groups();
}

void Job::abort(const std::string& reason) {
  all_->abort(reason);
  if (groups_) groups_->groups().abort(reason.c_str());
}

}  // namespace strata::train
