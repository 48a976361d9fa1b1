// SPDX-License-Identifier: Apache-2.0
#include "engine/comm/job_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/threads.h"
#include "engine/base/units.h"

namespace strata::comm {
namespace {

using Kind = JobMessage::Kind;
using Seconds = std::chrono::duration<double>;

constexpr double kBeatS = 1;
constexpr double kRetryS = 0.05;  // from one attempt to connect to the next
constexpr double kAnswerS = 60;   // to a request that the server answers at once
constexpr double kMomentS = 2;    // in which a reason comes that another rank has given
constexpr double kLeaveS = 2;     // in which the server takes note that this rank leaves
// How long a rank may have left while another still waits for it: what it sent before arrives.
constexpr double kGoneS = 1;

// Returns the server's welcome, or nothing when it has closed the connection: it makes room for
// others when many come.
std::optional<JobMessage> shake_hands(JobConnection& link, double end_s) {
  for (;;) {
    link.write();
    auto message = link.channel.next();
    if (message && message->kind == Kind::kDone) return message;
    if (message) {
      throw Error(ErrorCode::kConfig,
                  fmt::format("job store: rank {}: refused: {} (look at the ranks and sizes that "
                              "the processes of the job are given)",
                              link.channel.who().rank, message->value));
    }
    if (!wait_until_ready(link.socket, false, end_s - now_s())) {
      throw Error(ErrorCode::kPeer, "it accepts the connection and does not answer");
    }
    if (link.read() == 0) return std::nullopt;
  }
}

JobConnection connect(const JobStoreOptions& options, double& silence_s) {
  STRATA_CHECK(options.rank >= 0 && options.rank < options.size);
  check_secret(options.secret);
  const Endpoint endpoint = parse_endpoint(options.address);
  const double end_s = now_s() + options.connect_s;
  std::string cause = "it closes the connection";
  do {
    try {
      JobConnection link = {
          connect_to(endpoint, end_s - now_s()),
          JobChannel::client(options.secret, {.rank = options.rank, .size = options.size})};
      if (const auto welcome = shake_hands(link, end_s)) {
        silence_s = static_cast<double>(welcome->number) / 1000;
        return link;
      }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kPeer) throw;
      cause = error.what();
    }
    std::this_thread::sleep_for(Seconds(kRetryS));
  } while (now_s() < end_s);
  throw Error(ErrorCode::kDeadline,
              fmt::format("job store: {}: no connection within {} s: {} (is rank 0 running, and "
                          "does this machine reach that address?)",
                          options.address, options.connect_s, cause));
}

}  // namespace

JobStore::JobStore(JobStoreOptions options)
    : options_(std::move(options)),
      link_(connect(options_, silence_s_)),
      beat_s_(std::min(kBeatS, silence_s_ / 4)),
      clock_(beat_s_) {
  own_host_ = parse_endpoint(address_of(link_.socket)).host;
  thread_ = start_thread([this] { run(); });
}

JobStore::~JobStore() {
  {
    const std::lock_guard lock(mu_);
    leaving_until_s_ = now_s() + kLeaveS;
    if (!over_) link_.channel.send({.kind = Kind::kLeave});
  }
  wake_.set();
  thread_.join();
}

std::string JobStore::secret_for(const std::string& purpose) const {
  return std::string(view(hmac_sha256(options_.secret, "a secret for " + purpose)));
}

void JobStore::set(const std::string& key, std::string value) {
  answered("set", {.kind = Kind::kSet, .key = key, .value = std::move(value)});
}

int64_t JobStore::add(const std::string& key, int64_t number) {
  return answered("add", {.kind = Kind::kAdd, .number = number, .key = key}).number;
}

void JobStore::erase(const std::string& prefix) {
  answered("erase", {.kind = Kind::kErase, .key = prefix});
}

std::string JobStore::get(const std::string& key, double deadline_s, int owner) {
  auto answer = call("get", {.kind = Kind::kGet, .key = key}, deadline_s);
  if (answer) return std::move(answer->value);
  std::string who;
  if (owner >= 0) {
    answer = call("get", {.kind = Kind::kAskState, .number = owner}, kMomentS);
    who = fmt::format(": rank {} sets it", owner);
    if (answer) who += ", and " + answer->value;
  }
  throw Error(
      ErrorCode::kDeadline,
      fmt::format("get: {}: not set within {} s{} (look for the other ranks' own errors, or "
                  "raise the deadline)",
                  key, deadline_s, who));
}

void JobStore::leave(const std::string& group) {
  STRATA_CHECK(!group.empty());
  const std::lock_guard lock(mu_);
  if (over_) return;
  link_.channel.send({.kind = Kind::kLeave, .key = group});
  wake_.set();
}

bool JobStore::stop(const std::string& reason) {
  std::unique_lock lock(mu_);
  if (stopped_) return false;
  link_.channel.send({.kind = Kind::kStop, .value = reason.substr(0, kValueBytesMax)});
  wake_.set();
  if (!changed_.wait_for(lock, Seconds(kMomentS), [&] { return stopped_.has_value(); })) {
    set_stopped(fmt::format("rank {} stopped: {}", rank(), reason));
  }
  return true;
}

void JobStore::throw_stopped(const std::string& call) const {
  if (stopped_) throw Error(ErrorCode::kPeer, fmt::format("{}: {}", call, *stopped_));
}

void JobStore::throw_if_stopped(const std::string& call) const {
  const std::lock_guard lock(mu_);
  throw_stopped(call);
}

void JobStore::throw_if_stopped_soon(const std::string& call) const {
  std::unique_lock lock(mu_);
  changed_.wait_for(lock, Seconds(kMomentS), [&] { return stopped_.has_value(); });
  throw_stopped(call);
}

JobStore::OnStop::OnStop(JobStore& store, std::function<void()> call, Awaited awaited)
    : store_(store), call_(std::move(call)), awaited_(awaited) {
  const std::lock_guard lock(store_.mu_);
  stopped_before_ = store_.stopped_.has_value();
  began_s_ = store_.clock_.now_s();
  place_ = store_.waits_.insert(store_.waits_.end(), this);
}

JobStore::OnStop::~OnStop() {
  const std::lock_guard lock(store_.mu_);
  store_.waits_.erase(place_);
}

// The answer; nothing at the deadline.
std::optional<JobMessage> JobStore::call(const char* what, JobMessage request, double deadline_s) {
  if (request.key.size() > kKeyBytesMax || request.value.size() > kValueBytesMax) {
    throw Error(ErrorCode::kDoesNotFit,
                fmt::format("{}: {}: a key of {} with a value of {}: a key has at most {}, a value "
                            "at most {} (split it)",
                            what, request.key.substr(0, kKeyBytesMax),
                            format_bytes(static_cast<int64_t>(request.key.size())),
                            format_bytes(static_cast<int64_t>(request.value.size())),
                            format_bytes(kKeyBytesMax), format_bytes(kValueBytesMax)));
  }
  std::unique_lock lock(mu_);
  throw_stopped(what);
  request.request = ++last_request_;
  const auto place = answers_.emplace(request.request, std::nullopt).first;
  link_.channel.send(request);
  wake_.set();
  changed_.wait_for(lock, Seconds(deadline_s), [&] { return place->second || stopped_; });
  std::optional<JobMessage> answer = std::move(place->second);
  answers_.erase(place);
  if (!answer) {
    throw_stopped(what);
    link_.channel.send({.kind = Kind::kCancel, .request = request.request});
  } else if (answer->kind == Kind::kRefused) {
    throw Error(ErrorCode::kDoesNotFit,
                fmt::format("{}: {}: {}", what, request.key, answer->value));
  }
  return answer;
}

// Of a request that the server answers at once.
JobMessage JobStore::answered(const char* what, JobMessage request) {
  const std::string key = request.key;
  auto answer = call(what, std::move(request), kAnswerS);
  if (answer) return *std::move(answer);
  throw Error(
      ErrorCode::kDeadline,
      fmt::format("{}: {}: the job's server does not answer within {} s (is rank 0's machine "
                  "overloaded?)",
                  what, key, kAnswerS));
}

void JobStore::run() {
  std::unique_lock lock(mu_);
  while (!over_) {
    try {
      round(lock);
    } catch (const Error& error) {
      over_ = true;
      set_stopped(fmt::format("rank 0 is gone ({})", error.what()));
    }
  }
}

void JobStore::round(std::unique_lock<std::mutex>& lock) {
  clock_.tick();
  const auto count = link_.read();
  if (count) heard_s_ = clock_.now_s();
  while (auto message = link_.channel.next()) handle(*std::move(message));
  over_ = leaving_until_s_ && (count == 0 || now_s() > *leaving_until_s_);
  if (over_) return;
  if (count == 0) throw Error(ErrorCode::kPeer, "did its process end?");
  if (clock_.now_s() - heard_s_ > silence_s_) return give_up_server();
  look_for_leavers();
  if (clock_.now_s() >= beat_due_s_) {
    link_.channel.send({.kind = Kind::kBeat});
    beat_due_s_ = clock_.now_s() + beat_s_;
  }
  link_.write();

  const bool to_write = !link_.channel.outgoing().empty();
  pollfd events[] = {polled(wake_.fd(), true, false), polled(link_.socket.fd(), true, to_write)};
  lock.unlock();
  ::poll(events, 2, static_cast<int>(std::ceil(beat_s_ * 1000)));
  lock.lock();
  wake_.clear();
}

void JobStore::give_up_server() {
  const std::string reason = fmt::format(
      "rank 0 is silent for {} s (is its process stopped, or its machine cut off from "
      "the network?)",
      silence_s_);
  // For the case that it runs again.
  link_.channel.send({.kind = Kind::kStop, .value = reason});
  link_.write();
  over_ = true;
  set_stopped(reason);
}

void JobStore::handle(JobMessage message) {
  switch (message.kind) {
    case Kind::kDone:
    case Kind::kRefused:
      // The call may have ended at its deadline.
      if (const auto place = answers_.find(message.request); place != answers_.end()) {
        place->second = std::move(message);
        changed_.notify_all();
      }
      return;
    case Kind::kStopped:
      return set_stopped(message.value);
    case Kind::kLeft:
      left_.emplace(std::pair(message.key, static_cast<int>(message.number)), clock_.now_s());
      return;
    case Kind::kBeat:
      return;
    default:
      throw Error(ErrorCode::kPeer, "it sent a message that only a rank may send");
  }
}

// A rank that ends in good order while another waits for it has made fewer calls: the wait would
// last until its deadline.
void JobStore::look_for_leavers() {
  if (stopped_ || asked_to_stop_) return;
  const auto is_gone = [&](const std::string& group, const OnStop& wait) {
    const auto left = left_.find({group, wait.awaited_.rank});
    return left != left_.end() && clock_.now_s() - std::max(left->second, wait.began_s_) > kGoneS;
  };
  for (const OnStop* wait : waits_) {
    const std::string group(wait->awaited_.group);
    if (!is_gone(group, *wait) && !is_gone("", *wait)) continue;
    link_.channel.send(
        {.kind = Kind::kStop,
         .value = fmt::format("rank {} is gone from group {}, and rank {} waits for it (all ranks "
                              "must make the same calls)",
                              wait->awaited_.rank, group, rank())});
    asked_to_stop_ = true;
    return;
  }
}

void JobStore::set_stopped(const std::string& reason) {
  if (stopped_) return;
  stopped_ = reason;
  changed_.notify_all();
  for (const OnStop* wait : waits_) wait->call_();
}

}  // namespace strata::comm
