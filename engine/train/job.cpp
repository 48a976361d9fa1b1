// SPDX-License-Identifier: Apache-2.0
#include "engine/train/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/comm/group_gloo.h"
#include "engine/comm/message_auth.h"
#include "engine/comm/tcp_socket.h"
#include "engine/train/directory_mark.h"

namespace strata::train {
namespace {

// How long another machine may take to show a file that rank 0 has written.
constexpr double kShowsS = 15;
constexpr double kAnswersS = 5;  // a process of the same machine that listens
constexpr auto kListenAgain = std::chrono::milliseconds(20);

constexpr const char* kTermsKey = "job/terms";
constexpr const char* kMarkKey = "job/mark";

std::string node_key(int rank) {
  return fmt::format("job/node/{}", rank);
}
std::string seen_key(int rank) {
  return fmt::format("job/seen/{}", rank);
}

bool listens(const std::string& address) {
  try {
    comm::connect_to(comm::parse_endpoint(address), kAnswersS);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Where rank 0 listens. The directory may have what an earlier job of the same name left behind.
Invitation find_server(const MeetingPlace& place) {
  if (place.directory.empty()) return {place.address, place.secret};
  const double end_s = now_s() + place.deadline_s;
  for (;;) {
    Invitation invitation = await_invitation(place.directory, end_s - now_s());
    if (listens(invitation.address) || now_s() >= end_s) return invitation;
    std::this_thread::sleep_for(kListenAgain);
  }
}

// Many systems give their own name an address of the loopback interface, at which nobody else
// arrives.
void require_reachable(const std::string& given, const std::string& listening) {
  const auto is_loopback = [](const std::string& address) {
    const std::string host = comm::parse_endpoint(address).host;
    return host.starts_with("127.") || host == "::1" || host == "localhost";
  };
  if (is_loopback(given) || !is_loopback(listening)) return;
  throw Error(ErrorCode::kConfig,
              fmt::format("rendezvous: {}: on this machine it is {}, which other machines do not "
                          "reach (give this machine's address instead of its name)",
                          given, listening));
}

}  // namespace

Job::Job(MeetingPlace place) : place_(std::move(place)) {
  STRATA_CHECK(ranks() % ranks_on_node() == 0);
  if (leads()) {
    comm::JobServerOptions options = {.secret = place_.secret, .size = ranks()};
    if (place_.directory.empty()) {
      options.address = place_.address;
    } else {
      options.secret = comm::random_text();
    }
    server_ = std::make_unique<comm::JobServer>(options);
    if (place_.directory.empty()) {
      if (nodes() > 1) require_reachable(place_.address, server_->address());
    } else {
      invitation_.emplace(place_.directory, Invitation{server_->address(), options.secret});
    }
  }
  const Invitation invitation = find_server(place_);
  store_ = std::make_unique<comm::JobStore>(comm::JobStoreOptions{.address = invitation.address,
                                                                  .secret = invitation.secret,
                                                                  .rank = rank(),
                                                                  .size = ranks(),
                                                                  .connect_s = place_.deadline_s});
}

Job::~Job() {
  if (mpi_ == nullptr) return;
  groups_.reset();
  try {
    comm::finish_mpi(*store_, *mpi_);
  } catch (const Error&) {
    // Where the job has stopped, MPI ends with the process.
  }
}

std::string Job::name_of(int node, const std::string& host) const {
  return nodes() == 1 ? "this machine" : fmt::format("node {} ({})", node, host);
}

std::vector<NodeFacts> Job::meet(const NodeFacts& here, const std::string& shared) {
  if (leads()) {
    std::vector<NodeFacts> nodes = await_all(here);
    invitation_.reset();
    const DirectoryMark mark(shared);
    store_->set(kMarkKey, mark.text());
    for (int rank = 1; rank < ranks(); ++rank) {
      store_->get(seen_key(rank), place_.deadline_s + kShowsS, rank);
    }
    start_collectives();
    return nodes;
  }
  store_->set(node_key(rank()), to_text(here));
  const std::string unseen = why_unseen(store_->get(kMarkKey, kPatienceS, 0), shared, kShowsS);
  if (!unseen.empty()) {
    throw Error(ErrorCode::kConfig,
                fmt::format("out: {}: {} does not see the run directory of rank 0: {} (give a "
                            "directory that all machines share)",
                            shared, name_of(rank() / ranks_on_node(), here.host), unseen));
  }
  store_->set(seen_key(rank()), "");
  start_collectives();
  return {};
}

void Job::start_collectives() {
  if (place_.collectives != config::Collectives::kMpi) return;
  mpi_ = comm::start_mpi(*store_, place_.plugin_path);
}

// The machines in their order. Except for processors, their figures are those of their first ranks.
std::vector<NodeFacts> Job::await_all(const NodeFacts& own) {
  std::vector<NodeFacts> found(static_cast<size_t>(nodes()), own);
  std::map<int, std::vector<int>> missing;  // ranks by machine
  const double end_s = now_s() + place_.deadline_s;
  for (int rank = 1; rank < ranks(); ++rank) {
    const int node = rank / ranks_on_node();
    constexpr double kMomentS = 0.05;
    try {
      const NodeFacts facts =
          parse_node(store_->get(node_key(rank), std::max(kMomentS, end_s - now_s())));
      NodeFacts& of_node = found[static_cast<size_t>(node)];
      if (rank % ranks_on_node() == 0) {
        of_node = facts;
      } else {
        add_rank(facts, of_node);
      }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kDeadline) throw;
      missing[node].push_back(rank);
    }
  }
  if (missing.empty()) return found;
  std::string who;
  for (const auto& [node, absent] : missing) {
    if (!who.empty()) who += " and ";
    if (nodes() > 1) who += fmt::format("node {}: ", node);
    who += fmt::format("rank {}", fmt::join(absent, ", "));
  }
  throw Error(ErrorCode::kDeadline,
              fmt::format("ranks: {}: did not connect to {} within {} s (start the command on all "
                          "machines, and look for those ranks' own errors)",
                          who, server_->address(), place_.deadline_s));
}

void Job::give(const JobTerms& terms) {
  store_->set(kTermsKey, to_text(terms));
}

JobTerms Job::take() {
  return parse_terms(store_->get(kTermsKey, kPatienceS, 0));
}

RankGroups Job::join(const plan::Mesh& mesh, const comm::GroupOptions& options) {
  const std::string address =
      place_.interface.empty() ? store_->own_host() : comm::host_of(place_.interface);
  groups_.emplace(mesh, options, [&](const comm::ExchangeOptions& group) {
    return mpi_ ? comm::make_mpi_group(*store_, *mpi_, group)
                : comm::make_gloo_group(*store_, group, address);
  });
  return groups_->groups();
}

void Job::abort(const std::string& reason) {
  store_->stop(reason);
  if (groups_) groups_->groups().abort(reason.c_str());
}

}  // namespace strata::train
