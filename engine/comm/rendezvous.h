// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace strata::comm {

// The meeting point of a local group's threads: a reusable barrier and one mailbox a rank, with
// deadlines.
//
// Guarantees: a thread that has passed `enter` sees everything that the other threads wrote before
// their `enter`; no thread returns from `leave` before all have called it. An abort ends a wait in
// `enter` but not in `leave`, where other threads still copy from this thread's buffers and are
// about to arrive. Threads: any; each rank is one thread at a time, except for abort. Failure:
// Error{kPeer} after an abort, Error{kDeadline} naming the ranks that are missing.
class Rendezvous {
 public:
  Rendezvous(int size, double deadline_s);

  // `call` is the name of the collective, for messages.
  void enter(int rank, const char* call);
  void leave(int rank, const char* call);

  // A message that its sender has posted, as its receiver sees it.
  struct PostedMessage {
    const void* data = nullptr;
    int64_t bytes = 0;
    int to = -1;
    int64_t tag = 0;
  };
  // Returns when the receiver is done with the message's data.
  void post(int from, const PostedMessage& message);
  // Waits for a message from `from` to `to`. The caller must call `done` afterwards, unless this
  // throws.
  PostedMessage await_message(int from, int to);
  void done(int from);

  void abort(int rank, const std::string& reason);
  // Throws after an abort.
  void check(const std::string& call);

 private:
  enum class MailState : uint8_t { kEmpty, kPosted, kTaken, kDone };
  struct Mailbox {
    PostedMessage message;
    MailState state = MailState::kEmpty;
  };
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;

  template <typename Ready>
  bool wait(Lock& lock, bool abortable, Ready ready);
  void synchronize(int rank, const char* call, bool abortable);
  void throw_if_aborted(const std::string& call) const;
  [[noreturn]] void throw_late(int rank, const std::string& call, const std::string& who);
  std::string absent(uint64_t round) const;

  // Constant after construction.
  const int size_;
  const double deadline_s_;

  std::mutex mu_;
  std::condition_variable changed_;
  // Guarded by mu_.
  std::vector<uint64_t> rounds_;    // meetings that each rank has reached
  uint64_t completed_ = 0;          // meetings that all ranks have reached
  int present_ = 0;                 // ranks that have reached the next meeting
  std::vector<Mailbox> mailboxes_;  // by sender
  int aborted_by_ = -1;
  std::string reason_;
};

}  // namespace strata::comm
