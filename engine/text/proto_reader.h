// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace strata::text {

// A field of a message in the binary format of protocol buffers.
struct ProtoField {
  enum class Wire : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  uint32_t number = 0;
  Wire wire = Wire::kVarint;
  uint64_t value = 0;      // of all but kBytes
  std::string_view bytes;  // of kBytes: a text, or a message to read in turn
};

// Reads the fields of a message in order. Failure: next() throws Error that names the byte of the
// file. Memory: none; the fields are views of the message, which must lie within the file.
class ProtoReader {
 public:
  ProtoReader(std::string_view message, std::string_view file, const std::string& path)
      : rest_(message), file_(file), path_(path) {}

  // False at the end.
  bool next(ProtoField* field);

 private:
  uint64_t take_varint();
  std::string_view take(uint64_t bytes);
  [[noreturn]] void fail(const char* cause) const;

  std::string_view rest_;
  std::string_view file_;
  const std::string& path_;
};

}  // namespace strata::text
