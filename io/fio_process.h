// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata::io {

struct FioResult {
  double read_bytes_per_s = 0;
  double write_bytes_per_s = 0;
  double cpu_s_per_gb = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  bool limit_reached = false;  // ended by what it was allowed to write, before its time
  double bytes_per_s() const { return read_bytes_per_s + write_bytes_per_s; }
};

// The last line that fio printed with --output-format=terse --terse-version=3; nothing when it is
// not one, moved no byte, or reports an error.
std::optional<FioResult> parse_fio_terse(std::string_view output);

// What fio said of a failure, on one line and without its results.
std::string fio_words(std::string_view output);

struct FioOutput {
  int status = -1;         // as waitpid() tells it
  bool timed_out = false;  // it was killed; what it still does is not known
  std::string text;        // all that it printed
};

// Runs fio with these arguments. It allocates in huge pages where the kernel has them, as
// BenchMemory does, and ends when this process does. When `stop` is set it is told to end. It is
// killed when it has not ended after `limit_s`, or a while after it was told to.
FioOutput run_fio(const std::vector<std::string>& arguments, double limit_s,
                  const std::atomic<bool>* stop);

}  // namespace strata::io
