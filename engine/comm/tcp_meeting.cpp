// SPDX-License-Identifier: Apache-2.0
#include "engine/comm/tcp_meeting.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <list>
#include <optional>
#include <utility>

#include "engine/base/advice.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/comm/job_connection.h"

namespace strata::comm {
namespace {

constexpr size_t kStrangersMax = 64;  // connections that have not proved who they are
constexpr double kRetryS = 0.05;      // from one attempt to connect to the next
constexpr double kRoundS = 1;         // the longest round of the loop

std::string key_of(const ExchangeOptions& options, int place) {
  return fmt::format("tcp/{}/{}/address", options.name, place);
}

class Meeting {
 public:
  Meeting(JobStore& store, const ExchangeOptions& options, const TcpMeeting& meeting)
      : store_(store),
        options_(options),
        own_place_(meeting.own_place),
        authenticate_s_(meeting.authenticate_s),
        end_s_(now_s() + options.connect_s),
        ticket_(random_text()),
        places_(options.ranks.size()) {
    for (int place = 0; place < count(); ++place) {
      if (place == own_place_ || !meeting.is_met(place)) continue;
      (place < own_place_ ? callers_ : callees_).push_back({.place = place});
    }
    if (callers_.empty()) return;
    listener_ = listen_at({meeting.address, "0"});
    address_ = address_of(listener_);
  }

  std::vector<Socket> run() {
    find_callees();
    const JobStore::OnStop guard(store_, [this] { wake_.set(); }, {});
    while (has_missing(callers_) || has_missing(callees_)) {
      store_.throw_if_stopped("connect");
      if (now_s() > end_s_) throw_late();
      for (Peer& peer : callees_) call(peer);
      wait();
      for (Peer& peer : callees_) go_on(peer);
      serve_strangers();
    }
    return std::move(places_);
  }

 private:
  // A rank that this one is to be connected with. The rest is of one that this rank calls.
  struct Peer {
    int place;
    std::string address = {};
    std::string secret = {};
    std::optional<JobConnection> link = {};
    std::string cause = {};  // why it is not connected yet
  };
  struct Stranger {
    JobConnection link;
    double end_s;
  };

  int count() const { return static_cast<int>(options_.ranks.size()); }
  int rank_of(int place) const { return options_.ranks[static_cast<size_t>(place)]; }
  Socket& at(int place) { return places_[static_cast<size_t>(place)]; }
  bool is_missing(const Peer& peer) { return at(peer.place).fd() < 0; }
  bool has_missing(const std::vector<Peer>& peers) {
    return std::ranges::any_of(peers, [this](const Peer& peer) { return is_missing(peer); });
  }

  // Of connections to the rank that gave the ticket. A ticket is of one meeting, so neither another
  // group nor a rank of an earlier job that has the same address has the same secret.
  std::string secret_of(int place, const std::string& ticket) const {
    return store_.secret_for(fmt::format("tcp/{}/{}/{}", options_.name, place, ticket));
  }

  // All ranks say where they are, so the store names one that does not come to those above it too.
  void find_callees() {
    store_.set(key_of(options_, own_place_), address_ + " " + ticket_);
    const auto look_up = [this](const Peer& peer) {
      return store_.get(key_of(options_, peer.place), end_s_ - now_s(), rank_of(peer.place));
    };
    for (const Peer& peer : callers_) look_up(peer);
    for (Peer& peer : callees_) {
      const std::string told = look_up(peer);
      const size_t space = told.find(' ');
      peer.address = told.substr(0, space);
      peer.secret = secret_of(peer.place, told.substr(space + 1));
    }
  }

  void call(Peer& peer) {
    if (!is_missing(peer) || peer.link) return;
    try {
      peer.link.emplace(
          JobConnection{connect_to(parse_endpoint(peer.address), end_s_ - now_s()),
                        JobChannel::client(peer.secret, {.rank = own_place_, .size = count()})});
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kPeer) throw;
      peer.cause = error.what();
    }
  }

  void go_on(Peer& peer) {
    if (!peer.link) return;
    try {
      if (!peer.link->shake_hands()) return;
      at(peer.place) = std::move(peer.link->socket);
    } catch (const Error& error) {
      peer.cause = error.what();
    }
    peer.link.reset();
  }

  void wait() {
    std::vector<pollfd> events = {polled(wake_.fd(), true, false),
                                  polled(accepts_ ? listener_.fd() : -1, true, false)};
    const auto add = [&](const JobConnection& link) {
      events.push_back(polled(link.socket.fd(), true, !link.channel.outgoing().empty()));
    };
    double longest_s = std::clamp(end_s_ - now_s(), 0.0, accepts_ ? kRoundS : kRetryS);
    for (const Peer& peer : callees_) {
      if (peer.link) add(*peer.link);
      if (!peer.link && is_missing(peer)) longest_s = std::min(longest_s, kRetryS);
    }
    for (const Stranger& one : strangers_) add(one.link);
    ::poll(events.data(), events.size(), static_cast<int>(std::ceil(longest_s * 1000)));
    wake_.clear();
  }

  void serve_strangers() {
    if (!has_missing(callers_)) {
      listener_ = Socket();
      strangers_.clear();
      return;
    }
    std::erase_if(strangers_,
                  [this](Stranger& one) { return now_s() > one.end_s || admit(one.link); });
    accepts_ = true;
    for (size_t i = 0; i < kStrangersMax; ++i) {  // those who are here have their turn
      Socket socket = accept_one(listener_);
      if (socket.fd() < 0) {
        accepts_ = i > 0;  // there may be no descriptor: not at once again
        return require_descriptor(errno);
      }
      lacks_since_s_ = 0;
      JobConnection link = {std::move(socket), JobChannel::server(own_secret_)};
      if (admit(link)) continue;
      if (strangers_.size() == kStrangersMax) strangers_.pop_front();
      strangers_.push_back({std::move(link), now_s() + authenticate_s_});
    }
  }

  // Strangers may have taken the descriptors, but not for long.
  void require_descriptor(int error) {
    constexpr double kLackS = 10;
    if (!lacks_descriptors(error)) {
      lacks_since_s_ = 0;
      return;
    }
    if (lacks_since_s_ == 0) lacks_since_s_ = now_s();
    if (now_s() - lacks_since_s_ < kLackS) return;
    throw system_error(ErrorCode::kIo,
                       fmt::format("connect: rank {}: cannot accept the other ranks of group {}",
                                   rank_of(own_place_), options_.name),
                       error);
  }

  // Returns whether the connection is no stranger's any more: it is a caller's, or to be closed.
  bool admit(JobConnection& link) {
    try {
      if (!link.shake_hands()) return false;
      const JobChannel::Client who = link.channel.who();
      const auto is_it = [&](const Peer& peer) {
        return peer.place == who.rank && is_missing(peer);
      };
      if (who.size == count() && std::ranges::any_of(callers_, is_it)) {
        at(who.rank) = std::move(link.socket);
      }
    } catch (const Error&) {
      // It is told that it was refused, as far as its socket takes that.
      try {
        link.write();
      } catch (const Error&) {
      }
    }
    return true;
  }

  [[noreturn]] void throw_late() {
    std::vector<std::string> missing;
    for (const Peer& peer : callers_) {
      if (!is_missing(peer)) continue;
      missing.push_back(
          fmt::format("rank {} did not connect to {}", rank_of(peer.place), address_));
    }
    for (const Peer& peer : callees_) {
      if (!is_missing(peer)) continue;
      missing.push_back(fmt::format("rank {} at {}: {}", rank_of(peer.place), peer.address,
                                    peer.cause.empty() ? "it does not answer" : peer.cause));
    }
    throw Error(
        ErrorCode::kDeadline,
        fmt::format(
            "connect: rank {}: group {} is not connected within {} s: {} (look at the network "
            "between these addresses; --interface chooses another one)",
            rank_of(own_place_), options_.name, options_.connect_s, fmt::join(missing, "; ")));
  }

  // Constant after construction
  JobStore& store_;
  const ExchangeOptions& options_;
  const int own_place_;
  const double authenticate_s_;
  const double end_s_;
  const std::string ticket_;
  const std::string own_secret_ = secret_of(own_place_, ticket_);
  const WakeUp wake_;

  Socket listener_;  // while a caller is missing
  std::string address_;
  std::vector<Socket> places_;  // what is connected, by place
  std::vector<Peer> callers_, callees_;
  std::list<Stranger> strangers_;  // the oldest first
  bool accepts_ = true;
  double lacks_since_s_ = 0;  // descriptors; 0: there are some
};

}  // namespace

std::vector<Socket> meet_by_tcp(JobStore& store, const ExchangeOptions& options,
                                const TcpMeeting& meeting) {
  return Meeting(store, options, meeting).run();
}

void erase_tcp_meeting(JobStore& store, const ExchangeOptions& options, int own_place) {
  store.erase(key_of(options, own_place));
}

}  // namespace strata::comm
