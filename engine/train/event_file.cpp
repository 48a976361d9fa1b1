// SPDX-License-Identifier: Apache-2.0
#include "engine/train/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstring>
#include <filesystem>

#include "engine/base/blocking_call.h"
#include "engine/base/error.h"

namespace strata::train {
namespace {

// CRC-32C (Castagnoli), and the rotation and offset by which TFRecord masks it.
constexpr std::array<uint32_t, 256> kCrcTable = [] {
  std::array<uint32_t, 256> table = {};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
    table[byte] = crc;
  }
  return table;
}();

uint32_t masked_crc(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc = kCrcTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff] ^ (crc >> 8);
  }
  return std::rotr(~crc, 15) + 0xa282ead8u;
}

template <typename T>
std::string bytes_of(T value) {
  static_assert(std::endian::native == std::endian::little);
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

// Protocol buffers: a field is a varint of its number and wire type, and its value.
enum class Wire : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes += static_cast<char>(value);
}

std::string field(int number, Wire wire, std::string_view value) {
  std::string bytes = varint(static_cast<uint64_t>(number) << 3 | static_cast<uint64_t>(wire));
  if (wire == Wire::kBytes) bytes += varint(value.size());
  return bytes.append(value);
}

std::string new_path(const std::string& directory, double time_s) {
  const BlockingCall call("create", directory);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    throw system_error(ErrorCode::kIo, "create directory: " + directory, error.value());
  }
  return fmt::format("{}/events.out.tfevents.{:.0f}.{}.strata", directory, time_s, getpid());
}

}  // namespace

std::string event_record(double time_s, int64_t step, std::span<const Scalar> scalars,
                         std::string_view extra_fields) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    summary += field(1, Wire::kBytes,
                     field(1, Wire::kBytes, scalar.tag) +
                         field(2, Wire::kFixed32, bytes_of(static_cast<float>(scalar.value))));
  }
  std::string event = field(1, Wire::kFixed64, bytes_of(time_s)) +
                      field(2, Wire::kVarint, varint(static_cast<uint64_t>(step)));
  event.append(extra_fields);
  if (!summary.empty()) event += field(5, Wire::kBytes, summary);
  const std::string length = bytes_of(static_cast<uint64_t>(event.size()));
  return length + bytes_of(masked_crc(length)) + event + bytes_of(masked_crc(event));
}

// The first event is the version of the format; the second says from which step on the file counts.
EventFile::EventFile(const std::string& directory, int64_t first_step, double time_s)
    : file_("events", new_path(directory, time_s), 0) {
  constexpr uint64_t kStart = 1;
  file_.append(event_record(time_s, 0, {}, field(3, Wire::kBytes, "brain.Event:2")));
  file_.append(event_record(time_s, first_step, {},
                            field(7, Wire::kBytes, field(1, Wire::kVarint, varint(kStart)))));
}

void EventFile::append(const StepMetrics& metrics) {
  const Scalar scalars[] = {{"train/loss", metrics.loss},
                            {"train/grad_norm", metrics.grad_norm},
                            {"train/lr", metrics.lr},
                            {"train/epoch", metrics.epoch},
                            {"train/tokens_per_s", metrics.tokens_per_s()},
                            {"train/mfu", metrics.mfu}};
  if (metrics.skip != Skip::kNo) return;
  file_.append(event_record(metrics.time_s, metrics.step, scalars));
}

void EventFile::append(const EvaluationMetrics& metrics) {
  const Scalar scalars[] = {{"eval/loss", metrics.loss}, {"eval/perplexity", metrics.perplexity()}};
  file_.append(event_record(metrics.time_s, metrics.step, scalars));
}

}  // namespace strata::train
