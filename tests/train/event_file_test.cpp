// SPDX-License-Identifier: Apache-2.0
// Files of TensorBoard events, read by a reader of their own: framing, checksums and fields.
#include "engine/train/event_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "engine/text/text_files.h"

namespace strata::train {
namespace {

uint32_t bitwise_crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0x82f63b78u & (0u - (crc & 1)));
  }
  return ~crc;
}

template <typename T>
T number_at(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.substr(at, sizeof(T)).data(), sizeof(T));
  return value;
}

// The event of each record. Lengths and events are followed by checksums.
std::vector<std::string> events_in(std::string_view file) {
  std::vector<std::string> events;
  const auto expect_checksum = [&](size_t at, size_t count) {
    const uint32_t crc = bitwise_crc32c(file.substr(at, count));
    EXPECT_EQ(number_at<uint32_t>(file, at + count), ((crc >> 15) | (crc << 17)) + 0xa282ead8u);
  };
  for (size_t at = 0; at < file.size();) {
    const auto length = number_at<uint64_t>(file, at);
    expect_checksum(at, 8);
    expect_checksum(at + 12, length);
    events.emplace_back(file.substr(at + 12, length));
    at += 16 + length;
  }
  return events;
}

TEST(EventFile, ChecksumsAreThoseOfTheirDefinition) {
  EXPECT_EQ(bitwise_crc32c("123456789"), 0xe3069283u);  // RFC 3720, B.4
}

TEST(EventFile, ARecordHasTheFieldsOfAnEvent) {
  const Scalar scalars[] = {{"ab", 1.5}};
  const std::vector<std::string> events = events_in(event_record(2.0, 300, scalars));
  ASSERT_EQ(events.size(), 1u);
  const std::string expected(
      "\x09\0\0\0\0\0\0\0\x40"  // wall_time: 2.0
      "\x10\xac\x02"            // step: 300
      "\x2a\x0b"                // summary
      "\x0a\x09\x0a\x02"
      "ab"  // value, tag
      "\x15\0\0\xc0\x3f",
      9 + 3 + 2 + 6 + 5);  // simple_value: 1.5
  EXPECT_EQ(events[0], expected);
}

TEST(EventFile, HasAVersionTheFirstStepAndEachRecord) {
  const std::string directory = std::string(STRATA_BINARY_DIR) + "/test-data/tensorboard";
  std::filesystem::remove_all(directory);
  {
    EventFile file(directory, 8, 1.7e9);
    file.append(StepMetrics{
        .step = 8, .loss = 3.5, .tokens = 60, .positions = 100, .step_s = 0.5, .time_s = 1.7e9});
    file.append(StepMetrics{.step = 9, .skip = Skip::kNoTarget});
    file.append(EvaluationMetrics{.step = 9, .loss = 1.0, .time_s = 1.7e9});
  }
  std::vector<std::string> events;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    EXPECT_EQ(entry.path().filename().string().find("events.out.tfevents.1700000000."), 0u);
    events = events_in(text::read_text_file(entry.path().string(), 1 << 20));
  }
  ASSERT_EQ(events.size(), 4u);
  EXPECT_NE(events[0].find("brain.Event:2"), std::string::npos);
  EXPECT_NE(events[1].find(std::string("\x10\x08\x3a\x02\x08\x01", 6)), std::string::npos);
  EXPECT_NE(events[2].find("train/loss"), std::string::npos);
  EXPECT_NE(events[3].find("eval/perplexity"), std::string::npos);
}

}  // namespace
}  // namespace strata::train
