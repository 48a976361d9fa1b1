// SPDX-License-Identifier: Apache-2.0
// Ids and texts of a tokenizer.model are exactly those of the `sentencepiece` library, and files
// that are wrong or hostile are refused. The references come from
// tests/reference/make_sentence_piece_reference.py.
#include "engine/text/sentence_piece.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/json.h"
#include "engine/text/text_files.h"
#include "tests/support/temporary_directory.h"

namespace strata::text {
namespace {

using config::Json;
using Ids = std::vector<int32_t>;

std::string piece_folder_of(const std::string& kind) {
  return std::string(STRATA_TEST_DATA) + "/train/sentence_piece/" + kind;
}

class SentencePieceParity : public ::testing::TestWithParam<const char*> {};

TEST_P(SentencePieceParity, IdsAndTextsAreThoseOfTheReference) {
  const Tokenizer tokenizer = Tokenizer::read(piece_folder_of(GetParam()));
  const Json cases = Json::read_file(piece_folder_of(GetParam()) + "/cases.json");
  ASSERT_GT(cases.items().size(), 150u);
  for (const Json& one : cases.items()) {
    Ids ids;
    for (const Json& id : one.find("ids")->items())
      ids.push_back(static_cast<int32_t>(*id.int64()));
    EXPECT_EQ(tokenizer.decode(ids, true), one.find("plain")->string()) << one.dump();
    if (one.find("text") == nullptr) continue;
    EXPECT_EQ(tokenizer.encode(one.find("text")->string()), ids) << one.dump();
    StreamDecoder stream(tokenizer);
    std::string text;
    for (const int32_t id : ids) text += stream.push(id);
    text += stream.finish();
    EXPECT_EQ(text, one.find("plain")->string()) << one.dump();
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SentencePieceParity,
                         ::testing::Values("bpe_bytes", "bpe_symbols", "bpe_unknown", "unigram",
                                           "unigram_bytes", "unigram_suffix"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST(SentencePiece, IsReadUnderTheNameThatT5Has) {
  const test::TemporaryDirectory folder;
  EXPECT_FALSE(Tokenizer::is_in(folder.path()));
  write_text_file(folder / "spiece.model",
                  read_text_file(piece_folder_of("unigram") + "/tokenizer.model", 1 << 20));
  EXPECT_TRUE(Tokenizer::is_in(folder.path()));
  EXPECT_EQ(Tokenizer::read(folder.path()).encode("A ship"),
            Tokenizer::read(piece_folder_of("unigram")).encode("A ship"));
}

// Writes fields of protocol buffers.
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes += static_cast<char>(value);
}
std::string number(int field, uint64_t value) {
  return varint(static_cast<uint64_t>(field) << 3) + varint(value);
}
std::string bytes(int field, const std::string& value) {
  return varint(static_cast<uint64_t>(field) << 3 | 2) + varint(value.size()) + value;
}
std::string piece(const std::string& text, float score, int type) {
  const auto bits = std::bit_cast<uint32_t>(score);
  std::string little(4, '\0');
  for (int k = 0; k < 4; ++k) little[static_cast<size_t>(k)] = static_cast<char>(bits >> 8 * k);
  return bytes(
      1, bytes(1, text) + varint(2 << 3 | 5) + little + number(3, static_cast<uint64_t>(type)));
}

// <unk>, <s>, </s> and four pieces. `model`: 1 Unigram, 2 BPE.
std::string small_model(int model, const std::string& more = "") {
  return piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) +
         piece("\xE2\x96\x81", -1, 1) + piece("a", -2, 1) + piece("b", -3, 1) +
         piece("ab", -2.5, 1) + bytes(2, number(3, static_cast<uint64_t>(model))) + more;
}

TEST(SentencePiece, SmallModelsWork) {
  for (const int model : {1, 2}) {
    const Tokenizer tokenizer(read_sentence_piece(small_model(model), "t.model"), {});
    EXPECT_EQ(tokenizer.encode("ab  a c"), (Ids{3, 6, 3, 4, 3, 0})) << model;
    EXPECT_EQ(tokenizer.encode("<s>a"), (Ids{1, 3, 4})) << model;
    EXPECT_EQ(tokenizer.decode({1, 3, 6, 3, 4, 2}, true), "ab a") << model;
    EXPECT_EQ(tokenizer.vocabulary_size(), 7);
  }
}

struct BadModel {
  const char* name;
  std::string file;
  const char* named;  // what the message must hold
};

TEST(SentencePiece, BadFilesAreRefusedByName) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::string good = small_model(2);
  const std::vector<BadModel> models = {
      {"nothing", "", "no pieces"},
      {"cut", good.substr(0, 20), "longer than what holds it"},
      {"cut in a number", good + "\xFF\xFF", "ends within a number"},
      {"a long number", good + std::string(11, '\xFF'), "more than 64 bits"},
      {"field 0", good + std::string("\0\0", 2), "without a number"},
      {"a group", good + "\x0B", "unknown kind"},
      {"words", small_model(3), "model type 3 is not supported"},
      {"NaN", good + piece("c", nan, 1), "score nan"},
      {"infinite", good + piece("c", -infinity, 1), "score -inf"},
      {"empty piece", good + piece("", 0, 1), "piece 7 has 0 bytes"},
      {"long piece", good + piece(std::string(513, 'a'), 0, 1), "piece 7 has 513 bytes"},
      {"not UTF-8", good + piece("\xC3", 0, 1), "not UTF-8"},
      {"type 9", good + piece("c", 0, 9), "type 9"},
      {"a character without a piece", good + piece("ac", 0, 1), "'c', which is no piece"},
      {"unused in BPE", good + piece("c", 0, 5), "unused piece 'c'"},
      {"two unknown", good + piece("c", 0, 2), "2 pieces are the unknown one"},
      {"a byte", good + piece("<0x00>", 0, 6), "1 pieces are bytes"},
      {"bytes missing", good + bytes(2, number(3, 2) + number(35, 1)), "0 pieces are bytes"},
      {"twice", good + piece("a", 0, 1), "occurs twice"},
      {"no marks", good + bytes(3, number(5, 0)), "escape_whitespaces"},
      {"short charsmap", good + bytes(3, bytes(2, "ab")), "too few"},
      {"long table", good + bytes(3, bytes(2, "\x10\x10\x10\x10 abc")), "its table has"},
      {"value out of range",
       good + bytes(3, bytes(2, std::string("\4\0\0\0\xFF\xFF\xFF\xFF", 8) + "x")),
       "a replacement starts at byte"},
      {"denormalizer", good + bytes(5, bytes(2, "ab")), "denormalizer"},
  };
  for (const BadModel& model : models) {
    SCOPED_TRACE(model.name);
    try {
      const Tokenizer tokenizer(read_sentence_piece(model.file, "t.model"), {});
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConfig);
      EXPECT_NE(std::string(error.what()).find(model.named), std::string::npos) << error.what();
    }
  }
}

// Bytes changed at random: each result either works or is an Error, and none crashes or hangs.
TEST(SentencePiece, ChangedFilesAreRefusedOrWork) {
  std::mt19937 random(11);
  int refused = 0;
  for (const char* kind : {"bpe_unknown", "unigram", "bpe_symbols"}) {
    const std::string original =
        read_text_file(piece_folder_of(kind) + "/tokenizer.model", 1 << 20);
    for (int round = 0; round < 200; ++round) {
      std::string file = original;
      for (int change = 0; change < 1 + round % 4; ++change) {
        // Half of the changes in the last part, where the charsmap is.
        const size_t from = random() % 2 == 0 ? 0 : file.size() - file.size() / 4;
        const size_t at = from + random() % (file.size() - from);
        if (random() % 3 == 0)
          file.erase(at, 1 + random() % 8);
        else
          file[at] = static_cast<char>(random());
      }
      try {
        const Tokenizer tokenizer(read_sentence_piece(file, "t.model"), {});
        tokenizer.decode(tokenizer.encode("The quick ﬁx <s> 語 e\u0301 👍\n"));
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 60);
}

TEST(SentencePiece, FilesOfTransformersAddTokens) {
  const test::TemporaryDirectory folder;
  const auto read = [&] { return Tokenizer::read(folder.path()); };
  write_text_file(folder / "tokenizer.model", small_model(2));
  EXPECT_EQ(read().encode("a"), (Ids{3, 4}));
  EXPECT_EQ(read().bos_id(), 1);
  EXPECT_EQ(read().eos_id(), 2);
  write_text_file(folder / "added_tokens.json", R"({"<pad>":7})");
  EXPECT_EQ(read().encode("a<pad>a"), (Ids{3, 4, 7, 3, 4}));
  write_text_file(folder / "tokenizer_config.json", R"({"tokenizer_class":"LlamaTokenizer"})");
  EXPECT_EQ(read().encode("a"), (Ids{1, 3, 4}));
  write_text_file(folder / "tokenizer_config.json",
                  R"({"add_bos_token":false,"add_eos_token":true,"legacy":false,)"
                  R"("added_tokens_decoder":{"8":{"content":"<x>","lstrip":true}}})");
  EXPECT_EQ(read().encode("a <x>a<pad>a"), (Ids{3, 4, 8, 4, 7, 4, 2}));
  write_text_file(folder / "added_tokens.json", R"({"<pad>":-1})");
  EXPECT_THROW(read(), Error);
  write_text_file(folder / "added_tokens.json", R"({"<pad>":4})");
  EXPECT_THROW(read(), Error) << "the id is that of a piece";
}

// Long texts of one kind take time in proportion, and little memory where tokens do not overlap.
TEST(SentencePiece, LongRunsAreEncodedQuickly) {
  for (const char* kind : {"bpe_bytes", "bpe_symbols", "unigram", "unigram_bytes"}) {
    const Tokenizer tokenizer = Tokenizer::read(piece_folder_of(kind));
    for (const char* unit : {"a", "x ", "the", "\n", "語", "é", "1", "!", "<s"}) {
      std::string text;
      while (text.size() < 100000) text += unit;
      text += 'x';
      EXPECT_FALSE(tokenizer.encode(text).empty()) << kind << " " << unit;
    }
  }
}

}  // namespace
}  // namespace strata::text
