// SPDX-License-Identifier: Apache-2.0
#include "engine/train/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <map>
#include <numeric>
#include <thread>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/comm/group_tcp.h"
#include "engine/comm/message_auth.h"
#include "engine/comm/tcp_socket.h"
#include "engine/train/directory_mark.h"

namespace strata::train {
namespace {

// How long another machine may take to show a file that rank 0 has written.
constexpr double kShowsS = 15;
constexpr double kAnswersS = 15;  // a process of the same machine that listens
constexpr auto kListenAgain = std::chrono::milliseconds(20);

constexpr const char* kTermsKey = "job/terms";  // how many parts they have
constexpr size_t kTermsPart = size_t{512} << 10;
constexpr const char* kMarkKey = "job/mark";
constexpr const char* kNetworkKey = "job/network";  // whether it is measured

std::string part_key(size_t part) {
  return fmt::format("job/terms/{}", part);
}
std::string end_key(int rank) {
  return fmt::format("job/end/{}", rank);
}
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
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIo) throw;  // there is no descriptor
    return false;
  }
}

// What the caller's own network throws becomes an Error that names the other rank.
template <typename Call>
auto over_network(int peer, const Call& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kDeadline,
                fmt::format("ranks: rank {}: cannot be reached by the transport that was given: {} "
                            "(look for that rank's own error)",
                            peer, error.what()));
  }
}

void await(comm::Transport::Transfer& transfer, double limit_s) {
  const auto limit = std::chrono::milliseconds(std::lround(limit_s * 1e3));
  if (transfer.wait(std::max(limit, std::chrono::milliseconds(1)))) return;
  throw std::runtime_error("it was interrupted");
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
  if (leads()) open_server();
  store_ = find_server();
}

Job::~Job() {
  if (mpi_ == nullptr) return;
  groups_.reset();
  measured_.reset();
  try {
    comm::finish_mpi(*store_, *mpi_);
  } catch (const Error&) {
    // Where the job has stopped, MPI ends with the process.
  }
}

void Job::open_server() {
  const bool is_known = place_.directory.empty() && !place_.lend;  // to all ranks
  comm::JobServerOptions options = {.secret = place_.secret, .size = ranks()};
  if (!place_.address.empty()) options.address = place_.address;
  if (!is_known) options.secret = comm::random_text();
  server_ = std::make_unique<comm::JobServer>(options);
  own_ = {server_->address(), options.secret};
  if (!place_.directory.empty()) invitation_.emplace(place_.directory, own_);
  if (nodes() > 1) require_reachable(options.address, server_->address());
}

// The directory may have what an earlier job of the same name left behind, and another program may
// listen there by now. So it is read again until the server that it names knows its secret.
std::unique_ptr<comm::JobStore> Job::find_server() {
  const auto connect = [&](const Invitation& to, double connect_s) {
    return std::make_unique<comm::JobStore>(comm::JobStoreOptions{.address = to.address,
                                                                  .secret = to.secret,
                                                                  .rank = rank(),
                                                                  .size = ranks(),
                                                                  .connect_s = connect_s});
  };
  if (place_.lend) return connect(pass_on(own_), place_.deadline_s);
  if (place_.directory.empty()) return connect({place_.address, place_.secret}, place_.deadline_s);
  const double end_s = now_s() + place_.deadline_s;
  std::string cause = "nothing listens there";
  do {
    const Invitation invitation = await_invitation(place_.directory, end_s - now_s());
    try {
      if (listens(invitation.address)) {
        return connect(invitation, std::min(kAnswersS, end_s - now_s()));
      }
    } catch (const comm::SecretsDiffer& error) {
      cause = error.what();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kDeadline) throw;
      cause = error.what();
    }
    std::this_thread::sleep_for(kListenAgain);
  } while (now_s() < end_s);
  throw Error(ErrorCode::kDeadline,
              fmt::format("ranks: {}: rank 0 does not answer within {} s at the address that is "
                          "written there: {} (look for rank 0's own error)",
                          place_.directory, place_.deadline_s, cause));
}

std::vector<int> Job::all_ranks() const {
  std::vector<int> all(static_cast<size_t>(ranks()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Rank 0 sends where it listens to all others, as a line each of address and secret.
Invitation Job::pass_on(const Invitation& own) {
  lent_ = place_.lend(0, all_ranks());
  std::array<char, 512> text = {};
  const double end_s = now_s() + place_.deadline_s;
  if (!leads()) {
    over_network(
        0, [&] { await(*lent_->receive(0, text.data(), std::ssize(text)), end_s - now_s()); });
    text.back() = 0;
    const std::string line = text.data();
    const size_t end = line.find('\n');
    if (end == line.npos) {
      throw Error(
          ErrorCode::kPeer,
          "ranks: rank 0: what the transport brought is not its address (use one whose equal "
          "channels connect the ranks, with their bytes in order)");
    }
    return {line.substr(0, end), line.substr(end + 1)};
  }
  const std::string line = own.address + "\n" + own.secret;
  STRATA_CHECK(line.size() < text.size());
  std::ranges::copy(line, text.begin());
  std::vector<std::unique_ptr<comm::Transport::Transfer>> sent;
  for (int rank = 1; rank < ranks(); ++rank) {
    sent.push_back(
        over_network(rank, [&] { return lent_->send(rank, text.data(), std::ssize(text)); }));
  }
  for (int rank = 1; rank < ranks(); ++rank) {
    over_network(rank, [&] { await(*sent[static_cast<size_t>(rank - 1)], end_s - now_s()); });
  }
  return own;
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

// All machines send at once, as in a step.
comm::NetworkFigures Job::measure_network(bool is_wanted, const comm::GroupOptions& options) {
  if (nodes() == 1) return {};
  if (leads()) {
    store_->set(kNetworkKey, is_wanted ? "measured" : "");
  } else {
    is_wanted = !store_->get(kNetworkKey, kPatienceS, 0).empty();
  }
  if (!is_wanted) return {};
  measured_ =
      connect({.name = "trainer", .ranks = all_ranks(), .connect_s = kPatienceS, .group = options});
  return comm::measure_network(*measured_, ranks_on_node());
}

// The options may name very many files, and a value of the store has a limit.
void Job::give(const JobTerms& terms) {
  const std::string text = to_text(terms);
  size_t parts = 0;
  for (size_t begin = 0; begin < text.size(); begin += kTermsPart) {
    store_->set(part_key(parts++), text.substr(begin, kTermsPart));
  }
  store_->set(kTermsKey, std::to_string(parts));
}

JobTerms Job::take() {
  const std::string count = store_->get(kTermsKey, kPatienceS, 0);
  size_t parts = 0;
  std::from_chars(count.data(), count.data() + count.size(), parts);
  std::string text;  // empty where another build wrote the number, which parse_terms() says
  for (size_t part = 0; part < parts; ++part) {
    text += store_->get(part_key(part), kPatienceS, 0);
  }
  return parse_terms(text);
}

void Job::end(bool was_stopped) {
  constexpr double kAnyTimeS = 1e6;  // a rank that has ended, or is paused, is noticed before
  std::string lost;
  if (was_stopped && place_.launcher != 0 && getppid() != place_.launcher) {
    lost = fmt::format(
        "launch: the process that started rank {} is gone: the run was stopped, and "
        "can be resumed",
        rank());
  }
  if (leads()) {
    for (int r = 1; r < ranks(); ++r) {
      const std::string text = store_->get(end_key(r), kAnyTimeS, r);
      if (lost.empty()) lost = text;
    }
    store_->set(end_key(0), lost);
  } else {
    store_->set(end_key(rank()), lost);
    lost = store_->get(end_key(0), kAnyTimeS, 0);
  }
  if (!lost.empty()) throw Error(ErrorCode::kPeer, lost);
}

std::unique_ptr<comm::Group> Job::connect(comm::ExchangeOptions group) {
  group.ranks_on_node = ranks_on_node();
  if (place_.lend) {
    return comm::make_exchange_group(
        *store_, group, lent_ ? std::move(lent_) : place_.lend(group.channel, group.ranks));
  }
  if (mpi_) return comm::make_mpi_group(*store_, *mpi_, group);
  const std::string address =
      place_.interface.empty() ? store_->own_host() : comm::host_of(place_.interface);
  return comm::make_tcp_group(*store_, group, address);
}

RankGroups Job::join(const plan::Mesh& mesh, const comm::GroupOptions& options, double connect_s) {
  groups_.emplace(mesh, options, connect_s, [&](const comm::ExchangeOptions& group) {
    return measured_ ? std::move(measured_) : connect(group);  // the trainer's is the first
  });
  invitation_.reset();
  return groups_->groups();
}

void Job::abort(const std::string& reason) {
  store_->stop(reason);
  if (groups_) groups_->groups().abort(reason.c_str());
}

}  // namespace strata::train
