// SPDX-License-Identifier: Apache-2.0
#include "engine/comm/job_server.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/advice.h"
#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/running_clock.h"
#include "engine/base/threads.h"
#include "engine/comm/job_connection.h"

namespace strata::comm {
namespace {

using Kind = JobMessage::Kind;

constexpr size_t kStoreBytesMax = size_t{64} << 20;
constexpr size_t kEntryBytes = 128;                   // what a key costs beside its bytes
constexpr size_t kWaitingGetsMax = 256;               // of one rank
constexpr size_t kUnsentBytesMax = size_t{64} << 20;  // to one rank
constexpr double kRoundS = 1;                         // the longest round of the loop

}  // namespace

class JobServer::Loop {
 public:
  explicit Loop(JobServerOptions options)
      : options_(std::move(options)),
        listener_(listen_at(parse_endpoint(options_.address))),
        address_(address_of(listener_)),
        clock_(round_s()),
        ranks_(static_cast<size_t>(options_.size), RankState::kAwaited) {
    thread_ = start_thread([this] { run(); });
  }
  ~Loop() {
    ending_ = true;
    wake_.set();
    thread_.join();
  }

  const std::string& address() const { return address_; }

 private:
  struct Connection {
    JobConnection link;
    double came_s;   // when the connection was made
    double heard_s;  // when bytes came last
    int rank = -1;   // of whom, once it is known
    size_t waiting_gets = 0;
    bool last_words = false;  // it is closed when all is sent
    bool over = false;
  };
  struct Entry {
    std::optional<std::string> value;
    int64_t count = 0;
    int owner = -1;  // the rank that set the value
  };
  struct WaitingGet {
    Connection* connection;
    uint32_t request;
  };

  enum class RankState : uint8_t { kAwaited, kHere, kLeft, kGone };

  static const char* describe(RankState state) {
    switch (state) {
      case RankState::kAwaited:
        return "it has not connected";
      case RankState::kHere:
        return "it is connected";
      case RankState::kLeft:
        return "it has left the job";
      case RankState::kGone:
        return "it is gone";
    }
    return "";
  }

  double round_s() const { return std::min(kRoundS, options_.silence_s / 4); }

  void run() {
    std::optional<double> end_s;
    while (!end_s || clock_.now_s() < *end_s) {
      try {
        wait();
      } catch (const Error& error) {
        stop(fmt::format("the server of the job cannot go on: {}", error.what()));
      }
      clock_.tick();
      for (Connection& one : connections_) look_at_time(one);
      for (Connection& one : connections_) finish(one);
      std::erase_if(connections_, [](const Connection& one) { return one.over; });
      if (!ending_) continue;
      if (!end_s) end_s = clock_.now_s() + options_.linger_s;
      if (std::ranges::count(ranks_, RankState::kHere) == 0) return;
    }
  }

  void wait() {
    std::vector<pollfd> events = {polled(wake_.fd(), true, false),
                                  polled(listen_pause_ ? -1 : listener_.fd(), true, false)};
    for (const Connection& one : connections_) {
      const bool to_write = !one.link.channel.outgoing().empty();
      events.push_back(polled(one.link.socket.fd(), true, to_write));
    }
    listen_pause_ = false;
    if (::poll(events.data(), events.size(), static_cast<int>(std::ceil(round_s() * 1000))) < 1) {
      return;
    }
    wake_.clear();
    auto event = events.begin() + 2;
    for (Connection& one : connections_) {
      if ((event++)->revents != 0) serve(one);
    }
    if (events[1].revents != 0) welcome_strangers();
  }

  // Silent strangers cannot keep others out: the oldest makes room.
  void welcome_strangers() {
    Socket socket = accept_one(listener_);
    listen_pause_ = socket.fd() < 0;  // there is no descriptor: not at once again
    if (listen_pause_ && lacks_descriptors(errno) && !said_lack_) {
      said_lack_ = true;
      const std::string what = fmt::format("rendezvous: {}: cannot accept ranks", address_);
      log(LogLevel::kWarning, system_error(ErrorCode::kIo, what, errno).what());
    }
    const auto is_stranger = [](const Connection& one) { return one.rank < 0 && !one.over; };
    for (int i = 0; socket.fd() >= 0; socket = accept_one(listener_)) {
      if (std::ranges::count_if(connections_, is_stranger) >= options_.strangers_max) {
        std::ranges::find_if(connections_, is_stranger)->over = true;
      }
      connections_.push_back({.link = {std::move(socket), JobChannel::server(options_.secret)},
                              .came_s = clock_.now_s(),
                              .heard_s = clock_.now_s()});
      if (++i == options_.strangers_max) return;  // those who are here have their turn
    }
  }

  void serve(Connection& one) {
    if (one.over) return;
    try {
      const auto count = one.link.read();
      if (count) one.heard_s = clock_.now_s();
      JobChannel& channel = one.link.channel;
      if (one.rank < 0 && channel.is_open() && !one.last_words) admit(one);
      while (!one.last_words) {
        const auto message = channel.next();
        if (!message) break;
        handle(one, *message);
        if (channel.outgoing().size() > kUnsentBytesMax) {
          throw Error(ErrorCode::kPeer, "it does not read its answers");
        }
      }
      if (count == 0) lose(one, "did its process end?");
    } catch (const Error& error) {
      lose(one, error.what());
    }
  }

  void admit(Connection& one) {
    const JobChannel::Client who = one.link.channel.who();
    if (options_.ranks_return && ending_) {
      one.last_words = true;  // it may try again at the next server
      return;
    }
    std::string refusal;
    if (who.size != options_.size) {
      refusal = fmt::format("it is started as one of {} ranks, and the job has {}", who.size,
                            options_.size);
    } else if (who.rank < 0 || who.rank >= options_.size) {
      refusal = fmt::format("the job has the ranks 0 to {}", options_.size - 1);
    } else if (!may_come(state_of(who.rank))) {
      refusal = fmt::format("this rank came before, and {}", describe(state_of(who.rank)));
    }
    if (!refusal.empty()) {
      one.link.channel.send({.kind = Kind::kRefused, .value = refusal});
      one.last_words = true;
      return;
    }
    one.rank = who.rank;
    state_of(who.rank) = RankState::kHere;
    one.link.channel.send(
        {.kind = Kind::kDone, .number = static_cast<int64_t>(options_.silence_s * 1000)});
    if (reason_) one.link.channel.send({.kind = Kind::kStopped, .value = *reason_});
  }

  bool may_come(RankState state) const {
    return state == RankState::kAwaited || (options_.ranks_return && state != RankState::kHere);
  }

  void handle(Connection& one, const JobMessage& message) {
    const auto done = [&](int64_t number = 0, std::string value = "") {
      answer(one, {.kind = Kind::kDone,
                   .request = message.request,
                   .number = number,
                   .value = std::move(value)});
    };
    switch (message.kind) {
      case Kind::kSet:
        if (Entry* entry = make_room(one, message)) {
          entry->value = message.value;
          entry->owner = one.rank;
          done();
          answer_waiting(message.key, message.value);
        }
        return;
      case Kind::kGet:
        return get(one, message);
      case Kind::kAdd:
        if (Entry* entry = make_room(one, message)) done(entry->count += message.number);
        return;
      case Kind::kErase:
        erase(message.key);
        return done();
      case Kind::kAskState: {
        const bool is_rank = message.number >= 0 && message.number < options_.size;
        return done(0, is_rank ? describe(state_of(static_cast<int>(message.number))) : "");
      }
      case Kind::kCancel:
        return forget_waiting(one, message.request);
      case Kind::kStop:
        return stop(fmt::format("rank {} stopped: {}", one.rank, message.value));
      case Kind::kLeave:
        return leave(one, message.key);
      case Kind::kBeat:
        return answer(one, {.kind = Kind::kBeat});
      default:
        throw Error(ErrorCode::kPeer, "it sent a message that only the server may send");
    }
  }

  // Sent in this round of the loop.
  static void answer(Connection& one, const JobMessage& message) {
    if (!one.over) one.link.channel.send(message);
  }
  void tell_all(const JobMessage& message) {
    for (Connection& one : connections_) {
      if (one.rank >= 0) answer(one, message);
    }
  }

  // The entry of the message's key; null, and the request is refused, when it would be too much.
  Entry* make_room(Connection& one, const JobMessage& message) {
    const auto found = entries_.find(message.key);
    const size_t before = found == entries_.end() ? 0 : cost(*found);
    const bool same = before > 0 && message.kind != Kind::kSet;
    const size_t after = same ? before : kEntryBytes + message.key.size() + message.value.size();
    if (bytes_ - before + after <= kStoreBytesMax) {
      bytes_ += after - before;
      return &entries_[message.key];
    }
    answer(one, {.kind = Kind::kRefused,
                 .request = message.request,
                 .value = fmt::format("the store of the job is full: {} MiB in {} keys (erase "
                                      "what is no longer needed)",
                                      kStoreBytesMax >> 20, entries_.size())});
    return nullptr;
  }

  static size_t cost(const std::pair<const std::string, Entry>& entry) {
    const auto& value = entry.second.value;
    return kEntryBytes + entry.first.size() + (value ? value->size() : 0);
  }

  void get(Connection& one, const JobMessage& message) {
    const auto found = entries_.find(message.key);
    if (found != entries_.end() && found->second.value) {
      return answer(
          one, {.kind = Kind::kDone, .request = message.request, .value = *found->second.value});
    }
    if (++one.waiting_gets > kWaitingGetsMax) {
      throw Error(ErrorCode::kPeer, "it waits for too many keys at once");
    }
    waiting_.emplace(message.key, WaitingGet{&one, message.request});
  }

  void answer_waiting(const std::string& key, const std::string& value) {
    const auto [begin, end] = waiting_.equal_range(key);
    for (auto each = begin; each != end; ++each) {
      --each->second.connection->waiting_gets;
      answer(*each->second.connection,
             {.kind = Kind::kDone, .request = each->second.request, .value = value});
    }
    waiting_.erase(begin, end);
  }

  // All of them where no request is named.
  void forget_waiting(Connection& one, std::optional<uint32_t> request = {}) {
    one.waiting_gets -= std::erase_if(waiting_, [&](const auto& each) {
      return each.second.connection == &one &&
             each.second.request == request.value_or(each.second.request);
    });
  }

  void erase(const std::string& prefix) {
    auto each = entries_.lower_bound(prefix);
    while (each != entries_.end() && each->first.starts_with(prefix)) {
      bytes_ -= cost(*each);
      each = entries_.erase(each);
    }
  }

  void forget_values_of(int rank) {
    if (!options_.ranks_return || rank == 0) return;
    std::erase_if(entries_, [&](const auto& entry) {
      const bool is_of_rank = entry.second.owner == rank;
      if (is_of_rank) bytes_ -= cost(entry);
      return is_of_rank;
    });
  }

  void stop(const std::string& reason) {
    if (reason_) return;
    reason_ = reason.substr(0, kValueBytesMax);
    tell_all({.kind = Kind::kStopped, .value = *reason_});
  }

  void leave(Connection& one, const std::string& group) {
    if (group.empty()) {
      state_of(one.rank) = RankState::kLeft;
      one.last_words = true;
      forget_values_of(one.rank);
    }
    tell_all({.kind = Kind::kLeft, .number = one.rank, .key = group});
  }

  // A stranger goes unmentioned; a rank that has not left stops the job, unless it may return.
  void lose(Connection& one, const std::string& cause) {
    one.over = true;
    if (one.rank < 0 || one.last_words || state_of(one.rank) != RankState::kHere) {
      // It is told what was wrong with it, as far as its socket takes that.
      try {
        one.link.write();
      } catch (const Error&) {
      }
      return;
    }
    give_up(one, fmt::format("rank {} is gone ({})", one.rank, cause));
  }

  void give_up(Connection& one, const std::string& reason) {
    state_of(one.rank) = RankState::kGone;
    // Otherwise the connection of a silent rank stays: when it runs again, it learns the reason.
    if (!options_.ranks_return) return stop(reason);
    one.over = true;
    forget_values_of(one.rank);
  }

  void look_at_time(Connection& one) {
    const double now_s = clock_.now_s();
    if (one.rank < 0) {
      if (now_s - one.came_s > options_.authenticate_s) one.over = true;
    } else if (one.last_words) {
      if (now_s - one.heard_s > options_.authenticate_s) one.over = true;
    } else if (state_of(one.rank) == RankState::kHere && now_s - one.heard_s > options_.silence_s) {
      give_up(one,
              fmt::format("rank {} is silent for {} s (is its process stopped, or its machine cut "
                          "off from the network?)",
                          one.rank, options_.silence_s));
    }
  }

  // Sends what is to be sent.
  void finish(Connection& one) {
    try {
      if (!one.over) one.link.write();
    } catch (const Error& error) {
      lose(one, error.what());
    }
    if (one.last_words && one.link.channel.outgoing().empty()) one.over = true;
    if (one.over) forget_waiting(one);
  }

  RankState& state_of(int rank) { return ranks_[static_cast<size_t>(rank)]; }

  // Constant after construction
  const JobServerOptions options_;
  const Socket listener_;
  const std::string address_;
  const WakeUp wake_;

  // Owned by the thread
  RunningClock clock_;
  bool listen_pause_ = false;
  bool said_lack_ = false;             // of descriptors
  std::list<Connection> connections_;  // the oldest first
  std::vector<RankState> ranks_;
  std::map<std::string, Entry> entries_;
  size_t bytes_ = 0;  // of the entries
  std::multimap<std::string, WaitingGet> waiting_;
  std::optional<std::string> reason_;

  std::atomic<bool> ending_{false};
  std::jthread thread_;
};

JobServer::JobServer(JobServerOptions options) {
  STRATA_CHECK(options.size >= 1 && options.silence_s > 0 && options.authenticate_s > 0);
  check_secret(options.secret);
  loop_ = std::make_unique<Loop>(std::move(options));
}

JobServer::~JobServer() = default;

const std::string& JobServer::address() const {
  return loop_->address();
}

}  // namespace strata::comm
