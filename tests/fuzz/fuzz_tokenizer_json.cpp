// SPDX-License-Identifier: Apache-2.0
// The input up to a zero byte is a tokenizer.json, the rest a text. Whatever they are, reading and
// encoding end in ids or in our Error, and ids that come out can be decoded.
#include <cstdint>
#include <string_view>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/text/tokenizer_read.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const std::string_view text =
      zero == std::string_view::npos ? "A b<s>1\n" : input.substr(zero + 1);
  try {
    const text::Tokenizer tokenizer(text::read_tokenizer_json(input.substr(0, zero), "fuzz"), {});
    const std::vector<int32_t> ids = tokenizer.encode(text);
    for (const int32_t id : ids) STRATA_CHECK(id >= 0 && id < tokenizer.vocabulary_size());
    tokenizer.decode(ids);
  } catch (const Error&) {
  }
  return 0;
}
