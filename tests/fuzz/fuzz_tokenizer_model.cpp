// SPDX-License-Identifier: Apache-2.0
// The first two bytes are the length of a text, which is at the end of the input; between lies a
// tokenizer.model. Whatever they are, reading and encoding end in ids or in our Error, and ids that
// come out can be decoded.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/text/sentence_piece.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;
  std::string_view input(reinterpret_cast<const char*>(data), size);
  if (size < 2) return 0;
  const size_t wanted = data[0] | size_t{data[1]} << 8;
  input.remove_prefix(2);
  const size_t text_bytes = std::min(wanted, input.size());
  const std::string_view text = input.substr(input.size() - text_bytes);
  input.remove_suffix(text_bytes);
  try {
    const text::Tokenizer tokenizer(text::read_sentence_piece(input, "fuzz"), {});
    const std::vector<int32_t> ids = tokenizer.encode(text);
    for (const int32_t id : ids) STRATA_CHECK(id >= 0 && id < tokenizer.vocabulary_size());
    tokenizer.decode(ids);
  } catch (const Error&) {
  }
  return 0;
}
