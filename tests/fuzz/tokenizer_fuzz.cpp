// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: the input up to a zero byte is a tokenizer.json, the rest a text. Whatever they
// are, reading and encoding end in ids or in an Error, and ids that come out can be decoded.
//
//   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -I. tests/fuzz/tokenizer_fuzz.cpp
//     engine/train/{tokenizer*,pretokenizer,bpe*,text_*,data_files}.cpp
//     engine/config/json*.cpp engine/base/*.cpp -lfmt -lpcre2-8 -lutf8proc -o tokenizer_fuzz
//   ./tokenizer_fuzz -max_len=20000 corpus tests/data/train/tokenizers/llama2
#include <cstdint>
#include <string_view>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/config/json.h"
#include "engine/train/tokenizer_read.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const std::string_view text =
      zero == std::string_view::npos ? "A b<s>1\n" : input.substr(zero + 1);
  try {
    const config::Json json = config::Json::parse(input.substr(0, zero), "fuzz");
    const train::Tokenizer tokenizer(train::read_tokenizer_json(json, "fuzz"), {});
    const std::vector<int32_t> ids = tokenizer.encode(text);
    for (const int32_t id : ids) STRATA_CHECK(id >= 0 && id < tokenizer.vocabulary_size());
    tokenizer.decode(ids);
  } catch (const Error&) {
  }
  return 0;
}
