// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/standard_input.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/text/text_files.h"

namespace strata::cli {

bool has_piped_input() {
  struct stat info {};
  if (fstat(STDIN_FILENO, &info) != 0) return false;
  return S_ISFIFO(info.st_mode) || S_ISREG(info.st_mode) || S_ISSOCK(info.st_mode);
}

std::string read_standard_input(int64_t bytes_max) {
  std::string text;
  std::vector<char> block(1 << 16);
  while (true) {
    const ssize_t got = read(STDIN_FILENO, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw system_error(ErrorCode::kIo, "read standard input", errno);
    if (got == 0) break;
    text.append(block.data(), static_cast<size_t>(got));
    if (static_cast<int64_t>(text.size()) <= bytes_max) continue;
    throw Error(ErrorCode::kConfig,
                fmt::format("read standard input: it has more than {} (cut it into parts)",
                            format_bytes(bytes_max)));
  }
  text::drop_utf8_mark(text);
  return text;
}

}  // namespace strata::cli
