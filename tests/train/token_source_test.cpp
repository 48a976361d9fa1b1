// SPDX-License-Identifier: Apache-2.0
// Records are samples of their own, cut or padded; mixtures draw each part by its weight, in an
// order that only the seed and the row's number decide.
#include "engine/data/token_source.h"

#include <numeric>

#include "engine/data/batch.h"
#include "engine/data/data_report.h"
#include "tests/train/data_fixture.h"

namespace strata::data {
namespace {

using Ids = std::vector<int32_t>;

class RecordSamples : public DataTest {
 protected:
  static std::string row(const TokenSource& source, int64_t index) {
    Ids inputs(static_cast<size_t>(source.length()));
    Ids targets(inputs.size());
    source.sample(index, inputs.data(), targets.data());
    std::string text;
    for (const Ids* ids : {&inputs, &targets}) {
      for (const int32_t id : *ids) {
        text += id == 256 ? '|' : id == -1 ? '.' : id == 0 ? '_' : static_cast<char>(id);
      }
      text += ' ';
    }
    return text;
  }
};

TEST_F(RecordSamples, EachRecordIsPaddedOrCut) {
  const std::string path = write("a.jsonl", R"({"prompt":"1","completion":"a"})"
                                            "\n"
                                            R"({"prompt":"12345","completion":"b"})"
                                            "\n"
                                            R"({"prompt":"12","completion":"abcdef"})"
                                            "\n"
                                            R"({"prompt":"","completion":"xyz"})");
  const DataOptions options = {.length = 4, .samples = config::SampleLayout::kRecord};
  const Dataset data = open(path, options);
  ASSERT_EQ(data.train().sample_count(), 3);
  EXPECT_EQ(row(data.train(), 0), "1a__ a|.. ");
  EXPECT_EQ(row(data.train(), 1), "12ab .abc ");
  EXPECT_EQ(row(data.train(), 2), "xyz_ yz|. ");
  EXPECT_EQ(data.train().target_count(0), 2);
  EXPECT_EQ(data.train().target_count(1), 3);
  EXPECT_EQ(data.token_count(), 3 + 5 + 4);
  EXPECT_TRUE(contains(warnings_of(path, options),
                       "1 of 4 records has nothing to learn in the first 4 tokens (line 2)"));
  EXPECT_TRUE(contains(unwrapped(data.description()),
                       "1 record is cut, which loses 4 of 16 tokens (raise --sequence-length)"))
      << data.description();
  EXPECT_NE(data.fingerprint(), open(path, {.length = 4}).fingerprint());
  EXPECT_TRUE(contains(error_of(write("b.txt", "abc"), options), "plain text has no records"));
}

TEST_F(RecordSamples, TheLastOnesAreHeldOut) {
  std::string lines;
  for (const char* word : {"aa", "bb", "cc", "dd"})
    lines += fmt::format("{{\"text\":\"{}\"}}\n", word);
  const Dataset data =
      open(write("a.jsonl", lines),
           {.length = 3, .held_out_samples = 1, .samples = config::SampleLayout::kRecord});
  EXPECT_EQ(data.train().sample_count(), 3);
  EXPECT_EQ(row(data.held_out(), 0), "dd_ d|. ");
}

TEST_F(RecordSamples, TheReportShowsWhatIsLearned) {
  const std::string path = write("a.jsonl", R"({"prompt":"","completion":""})"
                                            "\n"
                                            R"({"prompt":"12\n","completion":"a\u00e9b"})");
  const std::string report = open(path, {.length = 2}).description();
  EXPECT_TRUE(
      contains(unwrapped(report), "records share samples, and 1 of 2 goes on in the next one"))
      << report;
  // The tokenizer of these tests decodes bytes as words.
  EXPECT_TRUE(contains(report, "\n         - 1 2 ")) << report;
  EXPECT_TRUE(contains(report, "\n         + a ")) << report;
  const std::string wide(5000, 'w');
  const std::string cut =
      open(write("b.jsonl", fmt::format(R"({{"prompt":"{0}","completion":"{0}"}})", wide)),
           {.length = 2})
          .description();
  for (size_t at = 0; at < cut.size();) {
    const size_t end = std::min(cut.find('\n', at), cut.size());
    EXPECT_TRUE(end - at <= 80 || cut.substr(at, 4) == "data") << cut;
    at = end + 1;
  }
  EXPECT_TRUE(contains(cut, "w w  ...  w w")) << cut;
}

TEST(OneLine, EscapesAndCutsInTheMiddle) {
  EXPECT_EQ(one_line("a\n\tb\x01", 20), "a\\n\\tb\\x01");
  EXPECT_EQ(one_line("0123456789abcdefghij", 15), "01234 ... fghij");
  EXPECT_EQ(one_line("\u00e9\u00e9\u00e9\u00e9\u00e9", 9), "\u00e9 ... \u00e9");
  EXPECT_EQ(one_line("a\xff", 20), "a\uFFFD");
}

// Tokens first, first + 1, ...; samples have 4.
TokenSequence counting(int32_t first, int64_t samples) {
  TokenSequence tokens("test", 100'000);
  Ids ids(static_cast<size_t>(samples * 4 + 1));
  std::iota(ids.begin(), ids.end(), first);
  tokens.append(ids, true);
  return tokens;
}

class Mixture : public testing::Test {
 protected:
  const TokenSequence few_ = counting(0, 10);
  const TokenSequence many_ = counting(1000, 90);
  const TokenSource source_{
      4,
      {{.tokens = &few_, .count = 10, .weight = 3}, {.tokens = &many_, .count = 90, .weight = 1}}};
};

TEST_F(Mixture, PartsAreDrawnByTheirWeights) {
  EXPECT_EQ(source_.draws_of(0), 75);
  EXPECT_EQ(source_.draws_of(1), 25);
  const Batches batches(source_, {.rows = 4, .seed = 5});
  EXPECT_EQ(batches.steps_per_epoch(), 25);
  for (int64_t epoch = 0; epoch < 18; ++epoch) {
    int64_t of_few = 0;
    for (int64_t row = epoch * 100; row < (epoch + 1) * 100; ++row) {
      of_few += batches.sample_of(row) < 10;
    }
    EXPECT_EQ(of_few, 75);
  }
  // Over 18 epochs of 25 draws, each of the 90 samples is used five times, over 18 of 75 each of
  // the 10 is used 135 times.
  std::vector<int> uses(100, 0);
  for (int64_t row = 0; row < 1800; ++row) ++uses[static_cast<size_t>(batches.sample_of(row))];
  for (size_t k = 0; k < uses.size(); ++k) EXPECT_EQ(uses[k], k < 10 ? 135 : 5) << k;
}

TEST_F(Mixture, TheOrderIsOfTheSeedAlone) {
  const Batches one(source_, {.rows = 1, .accumulate = 12, .seed = 5});
  const Batches two(source_, {.rows = 3, .accumulate = 2, .replicas = 2, .seed = 5});
  const Batches other(source_, {.rows = 1, .accumulate = 12, .seed = 6});
  int equal = 0;
  for (int64_t row = 0; row < 1000; ++row) {
    EXPECT_EQ(one.sample_of(row), two.sample_of(row));
    equal += one.sample_of(row) == other.sample_of(row);
  }
  EXPECT_LT(equal, 200);
}

TEST_F(Mixture, SmallWeightsAreDrawnAtLeastOnce) {
  const TokenSource source{4,
                           {{.tokens = &few_, .count = 10, .weight = 1e-6},
                            {.tokens = &many_, .count = 90, .weight = 1}}};
  EXPECT_EQ(source.draws_of(0), 1);
  EXPECT_EQ(source.draws_of(1), 99);
}

using MixtureFiles = DataTest;

TEST_F(MixtureFiles, WeightsFollowThePaths) {
  const std::string a = write("a.txt", std::string(40, 'a'));
  const std::string b = write("b.txt", std::string(40, 'b'));
  const Dataset data = open({a + ":0.75", b + ":0.25"}, {.length = 4});
  EXPECT_TRUE(data.is_mixture());
  EXPECT_EQ(data.train().draws_of(0), 15);
  EXPECT_TRUE(contains(unwrapped(data.description()),
                       "75% of the samples: 15 in an epoch, of 10 (1.5 passes)"))
      << data.description();
  EXPECT_NE(data.fingerprint(), open({a + ":0.5", b + ":0.5"}, {.length = 4}).fingerprint());
  const auto message = [&](const std::vector<std::string>& paths) {
    try {
      open(paths, {.length = 4});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_TRUE(
      contains(message({a + ":0.5", b}), "b.txt: it has no weight, but other data has one"));
  EXPECT_TRUE(contains(message({a + ":0", b + ":1"}), "the weight 0 is not above 0"));
  EXPECT_TRUE(
      contains(message({a + ":x"}), "the weight x is not a number (give a share such as 0.7)"));
  EXPECT_EQ(message({write("c:1", std::string(9, 'c'))}), "no error");
}

}  // namespace
}  // namespace strata::data
