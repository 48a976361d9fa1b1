// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace strata::comm {

// A nonce, a key, or the HMAC-SHA256 of a message.
using Digest = std::array<char, 32>;

inline std::string_view view(const Digest& digest) {
  return {digest.data(), digest.size()};
}

// Uses libcrypto. Threads: any. Failure: Error (kConfig) when libcrypto refuses.
Digest hmac_sha256(std::string_view key, std::string_view message);
Digest random_digest();     // from the generator that is fit for keys
std::string random_text();  // the same as 64 hexadecimal digits

// Takes the same time wherever the first difference is.
bool equal_in_constant_time(const Digest& a, std::string_view b);

}  // namespace strata::comm
