// SPDX-License-Identifier: Apache-2.0
#include "engine/comm/rendezvous.h"

#include <fmt/core.h>

#include "engine/base/check.h"
#include "engine/base/error.h"

namespace strata::comm {

Rendezvous::Rendezvous(int size, double deadline_s)
    : size_(size),
      deadline_s_(deadline_s),
      rounds_(static_cast<size_t>(size)),
      mailboxes_(static_cast<size_t>(size)) {
  STRATA_CHECK(size >= 1 && deadline_s > 0);
}

// Returns false only at the deadline. When `ready` holds, an abort does not matter: ranks that have
// met complete their call.
template <typename Ready>
bool Rendezvous::wait(Lock& lock, bool abortable, Ready ready) {
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(deadline_s_));
  return changed_.wait_until(lock, until,
                             [&] { return ready() || (abortable && aborted_by_ >= 0); });
}

void Rendezvous::throw_if_aborted(const std::string& call) const {
  if (aborted_by_ < 0) return;
  throw Error(ErrorCode::kPeer, fmt::format("{}: rank {} stopped: {}", call, aborted_by_, reason_));
}

std::string Rendezvous::absent(uint64_t round) const {
  std::string ranks;
  for (int r = 0; r < size_; ++r) {
    if (rounds_[static_cast<size_t>(r)] >= round) continue;
    ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", r);
  }
  return "rank " + ranks;
}

void Rendezvous::throw_late(int rank, const std::string& call, const std::string& who) {
  const std::string text = fmt::format(
      "{}: {}: did not come within {} s (look for that rank's own error, or raise the deadline)",
      call, who, deadline_s_);
  if (aborted_by_ < 0) {
    aborted_by_ = rank;
    reason_ = text;
    changed_.notify_all();
  }
  throw Error(ErrorCode::kDeadline, text);
}

void Rendezvous::synchronize(int rank, const char* call, bool abortable) {
  Lock lock(mu_);
  if (abortable) throw_if_aborted(call);
  const uint64_t round = ++rounds_[static_cast<size_t>(rank)];
  STRATA_CHECK(round == completed_ + 1);
  if (++present_ == size_) {
    present_ = 0;
    completed_ = round;
    changed_.notify_all();
    return;
  }
  const auto met = [&] { return completed_ >= round; };
  if (!wait(lock, abortable, met)) throw_late(rank, call, absent(round));
  if (!met()) throw_if_aborted(call);
}

void Rendezvous::enter(int rank, const char* call) {
  synchronize(rank, call, true);
}

void Rendezvous::leave(int rank, const char* call) {
  synchronize(rank, call, false);
}

void Rendezvous::post(int from, const PostedMessage& message) {
  Lock lock(mu_);
  throw_if_aborted("send");
  Mailbox& box = mailboxes_[static_cast<size_t>(from)];
  STRATA_CHECK(box.state == MailState::kEmpty);
  box = {message, MailState::kPosted};
  changed_.notify_all();
  const auto read = [&] { return box.state == MailState::kDone; };
  // The data must stay while the receiver reads it: only a message that no rank has taken can be
  // withdrawn.
  const auto over = [&] { return read() || (box.state == MailState::kPosted && aborted_by_ >= 0); };
  const bool in_time = wait(lock, false, over);
  const bool delivered = read();
  box.state = MailState::kEmpty;
  if (!in_time) throw_late(from, "send", fmt::format("rank {}", message.to));
  if (!delivered) throw_if_aborted("send");
}

Rendezvous::PostedMessage Rendezvous::await_message(int from, int to) {
  Lock lock(mu_);
  throw_if_aborted("recv");
  Mailbox& box = mailboxes_[static_cast<size_t>(from)];
  const auto here = [&] { return box.state == MailState::kPosted && box.message.to == to; };
  if (!wait(lock, true, here)) throw_late(to, "recv", fmt::format("rank {}", from));
  throw_if_aborted("recv");
  box.state = MailState::kTaken;
  return box.message;
}

void Rendezvous::done(int from) {
  const Lock lock(mu_);
  mailboxes_[static_cast<size_t>(from)].state = MailState::kDone;
  changed_.notify_all();
}

void Rendezvous::check(const std::string& call) {
  const std::lock_guard lock(mu_);
  throw_if_aborted(call);
}

void Rendezvous::abort(int rank, const std::string& reason) {
  const Lock lock(mu_);
  if (aborted_by_ >= 0) return;
  aborted_by_ = rank;
  reason_ = reason;
  changed_.notify_all();
}

}  // namespace strata::comm
