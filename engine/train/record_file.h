// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strata::train {

// A file to which a run appends records.
//
// Guarantees: append() returns when the whole record is with the kernel. A file that was removed is
// made again, with a warning. Threads: one. Failure: Error (kIo).
class RecordFile {
 public:
  // Opens or creates the file, and cuts it after its first `kept_bytes`. `what` names it in
  // messages.
  RecordFile(std::string what, std::string path, int64_t kept_bytes);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  void append(std::string_view record);

 private:
  void open(std::optional<int64_t> kept_bytes);  // nothing: all of it

  // Constant after construction
  const std::string what_;
  const std::string path_;
  int file_ = -1;
};

}  // namespace strata::train
