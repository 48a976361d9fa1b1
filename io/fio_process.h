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
  bool limit_reached = false;  // ended early by the limit on bytes written
  double bytes_per_s() const { return read_bytes_per_s + write_bytes_per_s; }
};

// Parses the last line that fio printed with --output-format=terse --terse-version=3. Returns
// nullopt when the line is no such result, moved no byte, or reports an error.
std::optional<FioResult> parse_fio_terse(std::string_view output);

// What fio printed about a failure, on one line and without results.
std::string fio_words(std::string_view output);

struct FioOutput {
  int status = -1;         // from waitpid()
  bool timed_out = false;  // it was killed, and may still wait in the kernel
  std::string text;        // everything that it printed
};

// Runs fio with these arguments. fio allocates huge pages where the kernel has them, as BenchMemory
// does, and ends when this process ends. It gets SIGTERM when `stop` becomes true, and is killed
// when it has not ended after `limit_s` or 10 s after that signal.
FioOutput run_fio(const std::vector<std::string>& arguments, double limit_s,
                  const std::atomic<bool>* stop);

}  // namespace strata::io
