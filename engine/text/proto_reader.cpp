// SPDX-License-Identifier: Apache-2.0
#include "engine/text/proto_reader.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "engine/base/error.h"

namespace strata::text {

void ProtoReader::fail(const char* cause) const {
  throw Error(ErrorCode::kConfig, fmt::format("read tokenizer: {}: byte {}: {} (fetch it again)",
                                              path_, rest_.data() - file_.data(), cause));
}

uint64_t ProtoReader::take_varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (rest_.empty()) fail("the file ends within a number");
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  fail("a number of more than 64 bits");
}

std::string_view ProtoReader::take(uint64_t bytes) {
  if (bytes > rest_.size()) fail("a field that is longer than what holds it");
  const std::string_view taken = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return taken;
}

bool ProtoReader::next(ProtoField* field) {
  static_assert(std::endian::native == std::endian::little);
  if (rest_.empty()) return false;
  const uint64_t key = take_varint();
  *field = {static_cast<uint32_t>(key >> 3), static_cast<ProtoField::Wire>(key & 7), 0, {}};
  if (key >> 3 == 0 || key >> 32 != 0) fail("a field without a number");
  switch (field->wire) {
    case ProtoField::Wire::kVarint:
      field->value = take_varint();
      return true;
    case ProtoField::Wire::kBytes:
      field->bytes = take(take_varint());
      return true;
    case ProtoField::Wire::kFixed64:
      std::memcpy(&field->value, take(8).data(), 8);
      return true;
    case ProtoField::Wire::kFixed32:
      std::memcpy(&field->value, take(4).data(), 4);
      return true;
  }
  fail("a field of an unknown kind");
}

}  // namespace strata::text
