// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>

#include "engine/base/error.h"
#include "engine/comm/message_auth.h"

namespace strata::comm {

// What a rank and the job's server say to each other.
struct JobMessage {
  enum class Kind : uint8_t {
    // From a rank. A request other than the last four gets a kDone or kRefused with its number.
    kSet,
    kGet,
    kAdd,
    kErase,     // all keys that begin with `key`
    kAskState,  // of rank `number`
    kCancel,    // the kGet with this request number
    kStop,      // the job, because of `value`
    kLeave,     // the group `key`, or the job when it is empty
    kBeat,      // answered by a kBeat
    // From the server
    kDone,
    kRefused,  // `value` says why
    kStopped,  // the job, because of `value`
    kLeft,     // rank `number` has left the group `key`, or the job when it is empty
  };
  Kind kind = Kind::kBeat;
  uint32_t request = 0;
  int64_t number = 0;
  std::string key = {};
  std::string value = {};

  bool operator==(const JobMessage&) const = default;
};

constexpr size_t kKeyBytesMax = 256;
constexpr size_t kValueBytesMax = size_t{1} << 20;
constexpr size_t kSecretBytesMin = 16;

std::string encode(const JobMessage& message);
JobMessage decode(std::string_view body);  // throws Error (kPeer)

// Error (kConfig): the two ends do not know the same secret.
class SecretsDiffer : public Error {
 public:
  explicit SecretsDiffer(const std::string& message) : Error(ErrorCode::kConfig, message) {}
};

// Throws Error (kConfig) when it is too short.
void check_secret(const std::string& secret);

// One end of a connection between a rank and the job's server, without the socket: the handshake in
// which both prove that they know the job's secret, then messages with a MAC and a counter each.
// README.md has the format. Two ranks of a group use the handshake alone (tcp_meeting.h).
//
// Memory: buffers of less than 100 bytes before the handshake is over; then what has come of one
// message, and what has not been fetched by next() and sent. Nothing is allocated for a length that
// is only claimed. Threads: one at a time. Failure: take() throws Error (kPeer) for bytes that an
// honest other end does not send, SecretsDiffer; the connection must then be closed.
class JobChannel {
 public:
  struct Client {
    int rank = 0;
    int size = 0;
  };
  // The nonce must be fresh; only tests give their own.
  static JobChannel server(std::string secret, const Digest& nonce = random_digest());
  static JobChannel client(std::string secret, Client who, const Digest& nonce = random_digest());

  // Both ends have proved that they know the secret.
  bool is_open() const { return state_ == State::kHeader || state_ == State::kBody; }
  // What the client said about itself; true once the channel is open.
  Client who() const { return client_; }

  void take(std::string_view bytes);  // bytes that came from the other end
  // How many bytes belong to what the other end must say next.
  size_t missing() const { return item_bytes_ - in_.size(); }
  std::optional<JobMessage> next();  // the messages among them, in order
  void send(const JobMessage& message);

  std::string_view outgoing() const { return std::string_view(out_).substr(out_begin_); }
  void sent(size_t bytes);

 private:
  // What the bytes that come next are.
  enum class State : uint8_t { kHello, kChallenge, kProof, kVerdict, kHeader, kBody, kRefused };

  JobChannel(std::string secret, const Digest& nonce, State first);
  void expect(State state, size_t bytes);
  void take_item();
  void take_proof();
  void take_verdict();
  void take_body();
  Digest derive(std::string_view purpose) const;
  void open();

  std::string secret_;  // empty once the channel is open
  Client client_;
  Digest client_nonce_;
  Digest server_nonce_;
  const bool is_server_;

  State state_ = State::kHello;
  size_t item_bytes_ = 0;  // the length of the item that is awaited
  std::string in_;         // what has come of it
  std::list<JobMessage> inbox_;
  std::string out_;
  size_t out_begin_ = 0;

  Digest send_key_ = {};
  Digest receive_key_ = {};
  uint64_t messages_sent_ = 0;
  uint64_t messages_received_ = 0;
};

}  // namespace strata::comm
