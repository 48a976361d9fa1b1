// SPDX-License-Identifier: Apache-2.0
#include "engine/comm/job_channel.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"

namespace strata::comm {
namespace {

constexpr std::string_view kMagic = "STRATAJ1";
constexpr size_t kDigestBytes = sizeof(Digest);
constexpr size_t kHelloBytes = kMagic.size() + 4 + 4 + kDigestBytes;
constexpr size_t kChallengeBytes = kMagic.size() + kDigestBytes;
constexpr size_t kVerdictBytes = 1 + kDigestBytes;
constexpr size_t kHeaderBytes = 4 + 8;             // length of the body, counter
constexpr size_t kFixedBodyBytes = 1 + 4 + 8 + 2;  // kind, request, number, length of the key
constexpr size_t kBodyBytesMax = kFixedBodyBytes + kKeyBytesMax + kValueBytesMax;
constexpr char kAccepted = 1;

// Integers are little-endian.
template <typename T>
void put(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
  }
}

template <typename T>
T take_integer(std::string_view& in) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<uint64_t>(static_cast<uint8_t>(in[i])) << (8 * i);
  }
  in.remove_prefix(sizeof(T));
  return static_cast<T>(value);
}

Digest take_digest(std::string_view& in) {
  Digest digest;
  std::copy_n(in.begin(), digest.size(), digest.begin());
  in.remove_prefix(digest.size());
  return digest;
}

[[noreturn]] void refuse_bytes(const std::string& cause) {
  throw Error(ErrorCode::kPeer,
              "connection: " + cause + " (does something else use its port, or change its bytes?)");
}

void take_magic(std::string_view& in) {
  if (!in.starts_with(kMagic)) refuse_bytes("the other end does not speak this protocol");
  in.remove_prefix(kMagic.size());
}

}  // namespace

void check_secret(const std::string& secret) {
  if (secret.size() >= kSecretBytesMin) return;
  throw Error(ErrorCode::kConfig,
              fmt::format("job store: secret: it has {} bytes, at least {} are needed (make one "
                          "with: openssl rand -hex 32)",
                          secret.size(), kSecretBytesMin));
}

std::string encode(const JobMessage& message) {
  STRATA_CHECK(message.key.size() <= kKeyBytesMax && message.value.size() <= kValueBytesMax);
  std::string body;
  body.reserve(kFixedBodyBytes + message.key.size() + message.value.size());
  put(body, static_cast<uint8_t>(message.kind));
  put(body, message.request);
  put(body, message.number);
  put(body, static_cast<uint16_t>(message.key.size()));
  return body.append(message.key).append(message.value);
}

JobMessage decode(std::string_view body) {
  if (body.size() < kFixedBodyBytes) refuse_bytes("a message is too short");
  const auto kind = take_integer<uint8_t>(body);
  if (kind > static_cast<uint8_t>(JobMessage::Kind::kLeft)) {
    refuse_bytes(fmt::format("a message is of the unknown kind {}", kind));
  }
  JobMessage message = {.kind = static_cast<JobMessage::Kind>(kind)};
  message.request = take_integer<uint32_t>(body);
  message.number = take_integer<int64_t>(body);
  const auto key_bytes = take_integer<uint16_t>(body);
  if (key_bytes > std::min(kKeyBytesMax, body.size()) || body.size() - key_bytes > kValueBytesMax) {
    refuse_bytes("a message has a key or value of a wrong length");
  }
  message.key = body.substr(0, key_bytes);
  message.value = body.substr(key_bytes);
  return message;
}

JobChannel::JobChannel(std::string secret, const Digest& nonce, State first)
    : secret_(std::move(secret)),
      client_nonce_(nonce),
      server_nonce_(nonce),
      is_server_(first == State::kHello) {}

JobChannel JobChannel::server(std::string secret, const Digest& nonce) {
  JobChannel channel(std::move(secret), nonce, State::kHello);
  channel.expect(State::kHello, kHelloBytes);
  return channel;
}

JobChannel JobChannel::client(std::string secret, Client who, const Digest& nonce) {
  JobChannel channel(std::move(secret), nonce, State::kChallenge);
  channel.client_ = who;
  channel.out_ = kMagic;
  put(channel.out_, static_cast<uint32_t>(who.rank));
  put(channel.out_, static_cast<uint32_t>(who.size));
  channel.out_ += view(nonce);
  channel.expect(State::kChallenge, kChallengeBytes);
  return channel;
}

void JobChannel::expect(State state, size_t bytes) {
  state_ = state;
  item_bytes_ = bytes;
  if (state != State::kBody) in_.clear();  // the header and the body are one item of a MAC
}

void JobChannel::take(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t count = std::min(bytes.size(), item_bytes_ - in_.size());
    in_.append(bytes.substr(0, count));
    bytes.remove_prefix(count);
    if (in_.size() == item_bytes_) take_item();
  }
}

void JobChannel::take_item() {
  std::string_view item = in_;
  switch (state_) {
    case State::kHello:
      take_magic(item);
      client_.rank = take_integer<int32_t>(item);
      client_.size = take_integer<int32_t>(item);
      client_nonce_ = take_digest(item);
      out_.append(kMagic).append(view(server_nonce_));
      return expect(State::kProof, kDigestBytes);
    case State::kChallenge:
      take_magic(item);
      server_nonce_ = take_digest(item);
      out_ += view(derive("client's proof"));
      return expect(State::kVerdict, kVerdictBytes);
    case State::kProof:
      return take_proof();
    case State::kVerdict:
      return take_verdict();
    case State::kHeader: {
      const auto length = take_integer<uint32_t>(item);
      if (length < kFixedBodyBytes || length > kBodyBytesMax) {
        refuse_bytes(fmt::format("a message claims {} bytes; {} to {} are allowed", length,
                                 kFixedBodyBytes, kBodyBytesMax));
      }
      return expect(State::kBody, kHeaderBytes + length + kDigestBytes);
    }
    case State::kBody:
      return take_body();
    case State::kRefused:
      refuse_bytes("bytes came after the end");
  }
}

// The client proves itself first, so that the server computes nothing about the secret that a
// stranger sees.
void JobChannel::take_proof() {
  if (!equal_in_constant_time(derive("client's proof"), in_)) {
    out_.append(kVerdictBytes, '\0');
    expect(State::kRefused, 1);
    throw SecretsDiffer("connection: the client has another secret");
  }
  out_.push_back(kAccepted);
  out_ += view(derive("server's proof"));
  open();
}

void JobChannel::take_verdict() {
  if (in_[0] != kAccepted) {
    throw SecretsDiffer(
        "secret: the server has another one (give the same secret to all processes of the job)");
  }
  if (!equal_in_constant_time(derive("server's proof"), std::string_view(in_).substr(1))) {
    throw SecretsDiffer(
        "secret: the server does not know it (is this the server of another job, or is something "
        "between it and this process?)");
  }
  open();
}

// A key of its own for each direction, so that no message can be turned back.
void JobChannel::open() {
  send_key_ = derive(is_server_ ? "server's key" : "client's key");
  receive_key_ = derive(is_server_ ? "client's key" : "server's key");
  secret_.clear();
  expect(State::kHeader, kHeaderBytes);
}

// All that follows the purpose has one length, so the texts of two purposes differ.
Digest JobChannel::derive(std::string_view purpose) const {
  std::string text = std::string(purpose).append(kMagic);
  put(text, static_cast<uint32_t>(client_.rank));
  put(text, static_cast<uint32_t>(client_.size));
  text.append(view(client_nonce_)).append(view(server_nonce_));
  return hmac_sha256(secret_, text);
}

void JobChannel::take_body() {
  const std::string_view item = in_;
  const std::string_view signed_part = item.substr(0, item.size() - kDigestBytes);
  if (!equal_in_constant_time(hmac_sha256(view(receive_key_), signed_part),
                              item.substr(signed_part.size()))) {
    refuse_bytes("a message has a wrong MAC");
  }
  std::string_view counter = signed_part.substr(4);
  if (take_integer<uint64_t>(counter) != messages_received_) {
    refuse_bytes("a message is repeated or missing");
  }
  ++messages_received_;
  inbox_.push_back(decode(signed_part.substr(kHeaderBytes)));
  expect(State::kHeader, kHeaderBytes);
}

std::optional<JobMessage> JobChannel::next() {
  if (inbox_.empty()) return std::nullopt;
  JobMessage message = std::move(inbox_.front());
  inbox_.pop_front();
  return message;
}

void JobChannel::send(const JobMessage& message) {
  STRATA_CHECK(is_open());
  const std::string body = encode(message);
  const size_t begin = out_.size();
  put(out_, static_cast<uint32_t>(body.size()));
  put(out_, messages_sent_++);
  out_ += body;
  const Digest mac = hmac_sha256(view(send_key_), std::string_view(out_).substr(begin));
  out_ += view(mac);
}

void JobChannel::sent(size_t bytes) {
  out_begin_ += bytes;
  STRATA_CHECK(out_begin_ <= out_.size());
  if (out_begin_ < out_.size() && out_begin_ < kBodyBytesMax) return;
  out_.erase(0, out_begin_);
  out_begin_ = 0;
}

}  // namespace strata::comm
