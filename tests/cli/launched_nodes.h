// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "tests/cli/launched_runs.h"

namespace strata::cli::test {

// An address where nobody listened a moment ago.
inline std::string free_address() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool bound =
      bind(socket, generic, length) == 0 && getsockname(socket, generic, &length) == 0;
  close(socket);
  return bound ? "127.0.0.1:" + std::to_string(ntohs(address.sin_port)) : "";
}

// `strata launch` on several machines, all of them this one and over the loopback interface.
class LaunchedNodes : public LaunchedRuns {
 protected:
  void SetUp() override {
    LaunchedRuns::SetUp();
    write_secret("secret", std::string(64, 'a'));
  }
  void write_secret(const std::string& name, const std::string& text) const {
    write_text(sandbox_ / name, text + "\n");
    chmod((sandbox_ / name).c_str(), 0600);
  }

  struct Nodes {
    int nodes = 2;
    int ranks = 1;  // of each
    std::string address = free_address();
    std::string secret = "secret";
  };
  static Arguments node(const Nodes& all, int rank, const Arguments& command) {
    Arguments words = {"launch",
                       "--nodes",
                       std::to_string(all.nodes),
                       "--node-rank",
                       std::to_string(rank),
                       "--ranks",
                       std::to_string(all.ranks),
                       "--rendezvous",
                       all.address,
                       "--secret-file",
                       all.secret,
                       "--rendezvous-deadline",
                       "60",
                       "--"};
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }
};

}  // namespace strata::cli::test
