// SPDX-License-Identifier: Apache-2.0
#include "engine/comm/message_auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "engine/base/error.h"

namespace strata::comm {
namespace {

[[noreturn]] void refuse(const char* what) {
  throw Error(ErrorCode::kConfig, std::string(what) +
                                      ": libcrypto: it refused (look at its configuration, "
                                      "openssl.cnf: HMAC, SHA256 and the generator are needed)");
}

}  // namespace

Digest hmac_sha256(std::string_view key, std::string_view message) {
  Digest digest;
  unsigned int bytes = 0;
  const auto* data = reinterpret_cast<const unsigned char*>(message.data());
  auto* out = reinterpret_cast<unsigned char*>(digest.data());
  if (::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()), data, message.size(), out,
             &bytes) == nullptr ||
      bytes != digest.size()) {
    refuse("cannot authenticate a message");
  }
  return digest;
}

Digest random_digest() {
  Digest digest;
  auto* out = reinterpret_cast<unsigned char*>(digest.data());
  if (::RAND_bytes(out, static_cast<int>(digest.size())) != 1) refuse("cannot make a nonce");
  return digest;
}

std::string random_text() {
  std::string text;
  for (const char byte : random_digest()) {
    const auto bits = static_cast<unsigned char>(byte);
    for (const int digit : {bits >> 4, bits & 15}) text += "0123456789abcdef"[digit];
  }
  return text;
}

bool equal_in_constant_time(const Digest& a, std::string_view b) {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace strata::comm
