// SPDX-License-Identifier: Apache-2.0
// The header parser takes what the format allows and refuses, by name, every way in which a header
// can lie.
#include "engine/model_files/safetensors.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/model_files/file.h"
#include "tests/support/temporary_directory.h"

namespace strata::model {
namespace {

std::string length_prefix(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i) & 0xff);
  return bytes;
}

// A file with this header and so many bytes of data.
std::string file_of(const std::string& header, size_t data_bytes) {
  return length_prefix(header.size()) + header + std::string(data_bytes, '\1');
}

std::string header_error(const std::string& contents) {
  const test::TemporaryDirectory directory;
  test::write_text(directory / "x.safetensors", contents);
  try {
    read_safetensors_header(directory / "x.safetensors");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    EXPECT_NE(std::string(error.what()).find("x.safetensors"), std::string::npos);
    return error.what();
  }
  return "accepted";
}

TEST(Safetensors, ReadsEntriesInTheOrderOfTheirData) {
  const test::TemporaryDirectory directory;
  const std::string header = R"({"b": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [4, 12]},
      "__metadata__": {"format": "pt"}, "a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
      "c": {"dtype": "I64", "shape": [0], "data_offsets": [12, 12]}}   )";
  test::write_text(directory / "x", file_of(header, 12));
  const auto entries = read_safetensors_header(directory / "x");
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].name, "a");
  EXPECT_EQ(entries[0].numel, 1);
  EXPECT_EQ(entries[1].name, "b");
  EXPECT_EQ(entries[1].offset, 8 + static_cast<int64_t>(header.size()) + 4);
  EXPECT_EQ(entries[1].dtype, DType::kBF16);
  EXPECT_EQ(entries[1].shape, (std::vector<int64_t>{2, 2}));
  EXPECT_FALSE(entries[2].dtype_known);
}

TEST(Safetensors, EveryLieIsRefusedWithItsName) {
  const struct {
    const char* header;
    size_t data_bytes;
    const char* said;
  } cases[] = {
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})", 4, "\"a\" has 4 bytes"},
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})", 7, "data_offsets has 8"},
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})", 9, "end at byte"},
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [1, 9]}})", 9, "starts at byte 1"},
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}})", 8, "wrong order"},
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
           "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}})",
       12, "starts at byte 4"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
           "b": {"dtype": "F32", "shape": [1], "data_offsets": [8, 12]}})",
       12, "starts at byte 8"},
      {R"({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}})", 4, "shape has -1"},
      {R"({"a": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 4]}})", 4,
       "2^63"},
      {R"({"a": {"dtype": "F32", "shape": [4611686018427387904], "data_offsets": [0, 0]}})", 0,
       "0 bytes"},
      {R"({"a": {"dtype": "F32", "shape": [1.5], "data_offsets": [0, 4]}})", 4, "shape has 1.5"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, -4]}})", 4,
       "data_offsets has -4"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}})", 4, "two numbers"},
      {R"({"a": {"dtype": "F33", "shape": [1], "data_offsets": [0, 4]}})", 4,
       "unknown dtype \"F33\""},
      {R"({"a": {"dtype": "F32", "shape": [1]}})", 4, "must be an object of"},
      {R"({"a": {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]}})", 4, "array"},
      {R"({"a": 1})", 0, "must be an object of"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
           "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})",
       4, "duplicate member"},
      {R"([1])", 0, "not a JSON object"},
      {R"({"a": )", 0, "x.safetensors header: line 1, column "},
  };
  for (const auto& one : cases) {
    EXPECT_NE(header_error(file_of(one.header, one.data_bytes)).find(one.said), std::string::npos)
        << one.header << " gave: " << header_error(file_of(one.header, one.data_bytes));
  }
}

TEST(Safetensors, TruncatedFilesAndLongHeadersAreRefused) {
  const std::string whole =
      file_of(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})", 8);
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(header_error(whole.substr(0, length)), "accepted") << length;
  }
  EXPECT_NE(header_error(length_prefix(100'000'001) + "{}").find("100000001 bytes"),
            std::string::npos);
  EXPECT_NE(header_error(length_prefix(~uint64_t{0}) + "{}").find("format allows"),
            std::string::npos);
}

TEST(Safetensors, AGitLfsPointerIsCalledThat) {
  EXPECT_NE(header_error("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
                .find("git lfs pull"),
            std::string::npos);
}

TEST(Safetensors, SpoiltHeadersAreRefusedOrStayWithinTheFile) {
  const std::string header = R"({"a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
      "b": {"dtype": "F32", "shape": [4], "data_offsets": [12, 28]}})";
  const std::string_view bytes = "0123456789-[]{},:\"aFb \\\xff";
  const Philox random(20);
  int refused = 0;
  constexpr int kTrials = 20000;
  for (uint64_t trial = 0; trial < kTrials; ++trial) {
    std::string spoilt = header;
    const auto x = random.at(trial);
    for (uint32_t i = 0; i <= x[0] % 3; ++i) {
      const auto y = random.at(trial, i + 1);
      spoilt[y[0] % spoilt.size()] = bytes[y[1] % bytes.size()];
    }
    const int64_t file_bytes = 8 + static_cast<int64_t>(spoilt.size()) + 28;
    try {
      for (const TensorEntry& entry : parse_safetensors_header(spoilt, file_bytes, "x")) {
        ASSERT_GE(entry.offset, 0) << spoilt;
        ASSERT_LE(entry.offset + entry.bytes, file_bytes) << spoilt;
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
      ++refused;
    }
  }
  EXPECT_GT(refused, kTrials / 2);
  EXPECT_LT(refused, kTrials);
}

TEST(Safetensors, WrittenPrefixReadsBackAndDataStartsAtAPage) {
  const std::vector<TensorPlan> tensors = {
      {"x", DType::kBF16, {3, 5}}, {"y\"\\", DType::kF32, {7}}, {"z", DType::kF32, {}}};
  const SafetensorsPrefix prefix = make_safetensors_prefix(tensors);
  EXPECT_EQ(prefix.bytes.size() % 4096, 0u);
  EXPECT_EQ(prefix.entries[0].offset, static_cast<int64_t>(prefix.bytes.size()));
  EXPECT_NE(prefix.bytes.find(R"("__metadata__": {"format": "pt"})"), std::string::npos);
  const auto entries =
      parse_safetensors_header(std::string_view(prefix.bytes).substr(8), prefix.file_bytes, "x");
  ASSERT_EQ(entries.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(entries[i].name, tensors[i].name);
    EXPECT_EQ(entries[i].shape, tensors[i].shape);
    EXPECT_EQ(entries[i].offset, prefix.entries[i].offset);
  }
}

}  // namespace
}  // namespace strata::model
