// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/host_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>

#include "engine/base/error.h"

namespace strata::cli {
namespace {

constexpr const char* kForm = "give one machine a line, as: gpu1 slots=4";

[[noreturn]] void refuse(const std::string& where, const std::string& cause,
                         const std::string& advice) {
  throw Error(ErrorCode::kConfig, fmt::format("hosts: {}: {} ({})", where, cause, advice));
}

// A name that neither ssh nor a shell takes for anything else.
bool is_host(const std::string& word) {
  return !word.starts_with('-') && std::ranges::all_of(word, [](unsigned char byte) {
    return std::isalnum(byte) != 0 ||
           std::string_view(".-_:@[]").find(static_cast<char>(byte)) != std::string_view::npos;
  });
}

int64_t slots_of(const std::string& word, const std::string& where) {
  constexpr std::string_view kSlots = "slots=";
  int64_t slots = 0;
  const char* end = word.data() + word.size();
  if (word.starts_with(kSlots)) {
    const auto [last, error] = std::from_chars(word.data() + kSlots.size(), end, slots);
    if (error == std::errc() && last == end && slots > 0) return slots;
  }
  refuse(where, word + ": it is not slots=N", kForm);
}

}  // namespace

HostFile parse_host_file(const std::string& text, const std::string& path) {
  HostFile file;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::string where = fmt::format("{}:{}", path, number);
    std::istringstream words(line.substr(0, line.find('#')));
    std::string host, slots, rest;
    if (!(words >> host)) continue;
    if (!is_host(host)) refuse(where, host + ": it is not the name of a machine", kForm);
    const int64_t ranks = words >> slots ? slots_of(slots, where) : 1;
    if (words >> rest) refuse(where, rest + ": it is one word too many", kForm);
    if (!file.hosts.empty() && ranks != file.ranks_on_host) {
      refuse(where, fmt::format("{} ranks, and {} on the first machine", ranks, file.ranks_on_host),
             "give all machines equally many");
    }
    file.hosts.push_back(host);
    file.ranks_on_host = ranks;
  }
  if (file.hosts.size() > 1) return file;
  refuse(path, "it names fewer than two machines",
         "use strata launch --ranks N on one machine, or add a line for another");
}

HostFile read_host_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw system_error(ErrorCode::kConfig, "hosts: " + path, errno, kForm);
  return parse_host_file({std::istreambuf_iterator<char>(file), {}}, path);
}

std::string address_of_host(const std::string& host) {
  return host.substr(host.rfind('@') + 1);
}

}  // namespace strata::cli
