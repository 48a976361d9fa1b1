// SPDX-License-Identifier: Apache-2.0
// Kept tokens are used as long as their version is the same, so what makes them may not change
// without another version.
#include "engine/data/tokens_version.h"

#include "tests/train/data_fixture.h"

namespace strata::data {
namespace {

class TokensVersion : public DataTest {};

TEST_F(TokensVersion, TheSameDataHasTheTokensThatThisVersionHad) {
  std::string lines;
  for (int k = 0; k < 50; ++k) {
    lines +=
        fmt::format(R"({{"prompt":"Count to {}","completion":"{}"}})", k, std::string(k, 'n')) +
        "\n";
  }
  const std::string prompts = write("a.jsonl", lines);
  const std::string chats =
      write("b.jsonl",
            R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]})");
  const std::string text = write("c.txt", "One line\nand another, with it's parts.\n");
  const uint64_t packed =
      open({prompts, chats}, {.length = 90, .samples = config::SampleLayout::kPacked})
          .fingerprint();
  const uint64_t stream = open({prompts, text}, {.length = 20}).fingerprint();
  EXPECT_EQ(fmt::format("version {}: {:016x} {:016x}", kTokensVersion, packed, stream),
            "version 7: 7f94e7af1e54afc9 7c191c65079455ab")
      << "raise kTokensVersion, then write the new line here";
}

}  // namespace
}  // namespace strata::data
