// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/checkpoint_list.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "engine/base/blocking_call.h"
#include "engine/base/error.h"

namespace strata::checkpoint {
namespace {

struct Name {
  int64_t step = 0;
  Kind kind = Kind::kWhole;
};

// Parses "step-000123", optionally followed by ".tmp-0123456789abcdef" or
// ".aside-0123456789abcdef"; nullopt for any other name.
std::optional<Name> parse_name(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  Name parsed;
  const char* first = name.data() + kPrefix.size();
  const char* last = name.data() + name.size();
  const auto [rest, error] = std::from_chars(first, last, parsed.step);
  if (error != std::errc() || *first == '-' || rest - first < 6) return std::nullopt;
  if (rest == last) return parsed;
  const std::string_view suffix(rest, static_cast<size_t>(last - rest));
  for (const auto& [mark, kind] :
       {std::pair{kPartialMark, Kind::kPartial}, {kAsideMark, Kind::kAside}}) {
    const bool marked = suffix.size() == mark.size() + 16 && suffix.starts_with(mark);
    if (!marked || suffix.find_first_not_of("0123456789abcdef", mark.size()) != suffix.npos) {
      continue;
    }
    parsed.kind = kind;
    return parsed;
  }
  return std::nullopt;
}

void require_target(const std::string& link) {
  std::error_code error;
  if (std::filesystem::exists(link, error)) return;
  throw Error(ErrorCode::kIo,
              "cannot list checkpoints: " + link +
                  ": it is a broken link (mount the drive that it leads to, or remove the link)");
}

}  // namespace

bool is_link(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_symlink(path, ignored);
}

std::vector<Entry> list(const std::string& directory, Kind kind) {
  const BlockingCall call("list", directory);
  std::vector<Entry> entries;
  std::error_code error;
  if (is_link(directory)) require_target(directory);
  for (std::filesystem::directory_iterator at(directory, error), end; at != end;
       at.increment(error)) {
    const std::optional<Name> name = parse_name(at->path().filename().string());
    if (!name || name->kind != kind) continue;
    const std::string path = at->path().string();
    if (is_link(path)) {
      if (kind != Kind::kWhole) continue;
      require_target(path);
    }
    std::error_code ignored;
    if (at->is_directory(ignored)) entries.push_back({path, name->step});
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw system_error(ErrorCode::kIo, "cannot list checkpoints: " + directory, error.value());
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.step != b.step ? a.step > b.step : a.path < b.path;
  });
  return entries;
}

}  // namespace strata::checkpoint
