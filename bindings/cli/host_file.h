// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strata::cli {

// The machines of a run: lines of "HOST slots=N" as in Open MPI's host files, where N is the number
// of ranks there, by default 1. "#" begins a comment. A HOST is a name or an address, with a user
// before "@" where ssh needs one; IPv6 addresses are in brackets.
struct HostFile {
  std::vector<std::string> hosts = {};  // at least two: "gpu1", "user@10.0.0.2", "[2001:db8::1]"
  int64_t ranks_on_host = 1;
};

// Throws Error (kConfig) with the line that cannot be used, also where hosts have not equally many
// ranks.
HostFile read_host_file(const std::string& path);
HostFile parse_host_file(const std::string& text, const std::string& path);

// The name of a host without a user, as other machines reach it; IPv6 addresses in brackets.
std::string address_of_host(const std::string& host);

// The host as ssh takes it: with its user, and without brackets.
std::string ssh_name_of_host(const std::string& host);

}  // namespace strata::cli
