// SPDX-License-Identifier: Apache-2.0
#include "engine/train/job.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/checkpoint/checkpoint_file.h"
#include "engine/comm/message_auth.h"
#include "engine/comm/text_exchange.h"

namespace strata::train {
namespace {

using config::Json;

constexpr double kServerS = 60;  // in which rank 0's server is there

// The members of the terms that are numbers, or not known.
template <typename Terms, typename Visit>
void each_number(Terms& terms, Visit visit) {
  auto& facts = terms.facts;
  visit("cores", facts.limits.cores);
  visit("memory_total", facts.limits.memory_total_bytes);
  visit("memory_available", facts.limits.memory_available_bytes);
  visit("cgroup_limit", facts.limits.cgroup_limit_bytes);
  visit("cgroup_free", facts.limits.cgroup_free_bytes);
  visit("memlock", facts.limits.memlock_bytes);
  visit("address_space", facts.limits.address_space_bytes);
  visit("nvme_free", facts.nvme_free_bytes);
  visit("data", facts.data_bytes);
  visit("steps", facts.steps);
  visit("resumed_step", terms.resumed_step);
}

Json json_of(int64_t number) {
  return number;
}
Json json_of(const std::optional<int64_t>& number) {
  return number ? Json(*number) : Json();
}
void read_number(const Json& json, int64_t& number) {
  number = *json.int64();
}
void read_number(const Json& json, std::optional<int64_t>& number) {
  number = json.int64();
}

// The address and the secret of the job's server, in a file of the meeting place.
struct Invitation {
  std::string address;
  std::string secret;
};

std::string path_of(const MeetingPlace& place) {
  return place.directory + "/server";
}

// Whole, or not there.
void write_invitation(const Invitation& invitation, const std::string& path) {
  const std::string part = path + ".part";
  checkpoint::write_small_file(part, invitation.address + '\n' + invitation.secret + '\n');
  std::error_code error;
  std::filesystem::rename(part, path, error);
  if (error) throw system_error(ErrorCode::kIo, "launch: cannot write: " + path, error.value());
}

Invitation await(const std::string& path) {
  for (const double end_s = now_s() + kServerS; now_s() < end_s;) {
    std::ifstream file(path);
    Invitation invitation;
    if (file >> invitation.address >> invitation.secret) return invitation;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  throw Error(ErrorCode::kDeadline,
              fmt::format("launch: {}: rank 0 did not write it within {} s (look for rank 0's own "
                          "error)",
                          path, kServerS));
}

std::string random_secret() {
  std::string secret;
  for (const char byte : comm::random_digest()) {
    secret += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return secret;
}

const Json& member(const Json& json, const char* name) {
  const Json* found = json.find(name);
  STRATA_CHECK(found != nullptr);  // both sides are this build
  return *found;
}

}  // namespace

Job::Job(MeetingPlace place) : place_(std::move(place)) {
  if (leads()) {
    const std::string secret = random_secret();
    server_ = std::make_unique<comm::JobServer>(
        comm::JobServerOptions{.secret = secret, .size = ranks()});
    write_invitation({server_->address(), secret}, path_of(place_));
  }
  const Invitation invitation = await(path_of(place_));
  store_ = std::make_unique<comm::JobStore>(comm::JobStoreOptions{
      .address = invitation.address, .secret = invitation.secret, .rank = rank(), .size = ranks()});
  all_ = meet(*store_, "job", {.size = ranks()}, {.deadline_s = kPatienceS});
  // All have met. The process that made the directory may be gone at the end.
  std::error_code ignored;
  if (leads()) std::filesystem::remove_all(place_.directory, ignored);
}

void Job::give(const Terms& terms) {
  Json json = Json::object();
  each_number(terms,
              [&](const char* name, const auto& number) { json.set(name, json_of(number)); });
  json.set("machine", config::to_toml(terms.facts.machine));
  json.set("resume_from", terms.resume_from);
  json.set("run", terms.run);
  comm::broadcast_text(all_.get(), json.dump());
}

Job::Terms Job::take() {
  const Json json = Json::parse(comm::broadcast_text(all_.get(), ""), "terms of rank 0");
  Terms terms;
  each_number(terms,
              [&](const char* name, auto& number) { read_number(member(json, name), number); });
  terms.facts.machine = config::parse_machine(member(json, "machine").string(), "terms of rank 0");
  terms.resume_from = member(json, "resume_from").string();
  terms.run = member(json, "run").string();
  return terms;
}

RankGroups Job::join(const plan::Mesh& mesh, const comm::GroupOptions& options) {
  groups_.emplace(*store_, mesh, options);
  return groups_->groups();
}

void Job::abort(const std::string& reason) {
  all_->abort(reason);
  if (groups_) groups_->groups().abort(reason.c_str());
}

}  // namespace strata::train
