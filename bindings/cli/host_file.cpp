// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/host_file.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string_view>

#include "engine/base/error.h"
#include "engine/config/config_file.h"

namespace strata::cli {
namespace {

constexpr const char* kForm = "give one machine a line, as: gpu1 slots=4";

[[noreturn]] void refuse(const std::string& where, const std::string& cause,
                         const std::string& advice) {
  throw Error(ErrorCode::kConfig, fmt::format("hosts: {}: {} ({})", where, cause, advice));
}

// Letters that neither ssh nor a shell takes for anything else.
bool is_name(std::string_view word) {
  return !word.empty() && !word.starts_with('-') &&
         std::ranges::all_of(word, [](unsigned char byte) {
           return std::isalnum(byte) != 0 ||
                  std::string_view(".-_").find(static_cast<char>(byte)) != std::string_view::npos;
         });
}

bool is_bracketed_ipv6(const std::string& text) {
  if (!text.starts_with('[') || !text.ends_with(']')) return false;
  in6_addr address = {};
  return inet_pton(AF_INET6, text.substr(1, text.size() - 2).c_str(), &address) == 1;
}

void require_host(const std::string& word, const std::string& where) {
  const std::string address = address_of_host(word);
  const bool has_user = address.size() < word.size();
  const bool user_is_name =
      !has_user || is_name(std::string_view(word).substr(0, word.size() - address.size() - 1));
  if (user_is_name && (is_name(address) || is_bracketed_ipv6(address))) return;
  if (address.find(':') == std::string::npos) {
    refuse(where, word + ": it is not the name of a machine", kForm);
  }
  refuse(where, word + ": it has a colon, and is no IPv6 address in brackets",
         "give an IPv6 address as [2001:db8::1], and the port of ssh as --ssh \"ssh -p PORT\"");
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
    require_host(host, where);
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
  std::string text;
  try {
    text = config::read_config_file(path);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("hosts: {}", error.what()));
  }
  return parse_host_file(text, path);
}

std::string address_of_host(const std::string& host) {
  return host.substr(host.rfind('@') + 1);
}

std::string ssh_name_of_host(const std::string& host) {
  std::string name = host;
  std::erase_if(name, [](char byte) { return byte == '[' || byte == ']'; });
  return name;
}

}  // namespace strata::cli
