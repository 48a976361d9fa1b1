// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <optional>
#include <string>

#include "bindings/cli/command_options.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/job_secret.h"
#include "bindings/cli/launched_hosts.h"
#include "bindings/cli/launched_run.h"
#include "engine/base/error.h"
#include "engine/base/failures.h"
#include "engine/comm/tcp_socket.h"

namespace strata::cli {

namespace {

constexpr int64_t kRanksMax = 1 << 20;
constexpr int kPortMax = 65535;
constexpr int64_t kRanksOfMachine = 128;  // more have more connections than a machine has ports

// Mistakes about several machines, all at once.
void require_nodes(const config::Options& options) {
  if (options.ranks > kRanksOfMachine) {
    throw Error(ErrorCode::kConfig,
                fmt::format("ranks: {} are more than {} on one machine (give fewer; a rank uses "
                            "several cores by --threads)",
                            options.ranks, kRanksOfMachine));
  }
  if (options.nodes == 1) return;
  Failures failures;
  const auto require = [&](bool holds, const std::string& problem) {
    if (!holds) failures.collect([&] { throw Error(ErrorCode::kConfig, problem); });
  };
  require(options.nodes * options.ranks <= kRanksMax,
          fmt::format("nodes: {} machines of {} ranks are more than {} ranks (give fewer)",
                      options.nodes, options.ranks, kRanksMax));
  require(options.node_rank >= 0,
          fmt::format("--node-rank is missing: the number of this machine among {} (give 0 on the "
                      "one at --rendezvous, {} on the last)",
                      options.nodes, options.nodes - 1));
  require(options.node_rank < options.nodes,
          fmt::format("--node-rank {}: there are {} machines (give 0 on the one at --rendezvous, "
                      "{} on the last)",
                      options.node_rank, options.nodes, options.nodes - 1));
  require(!options.rendezvous.empty(),
          "--rendezvous is missing: several machines meet at an address of the first (give "
          "--rendezvous HOST:PORT)");
  if (!options.rendezvous.empty()) {
    failures.collect([&] {
      const bool has_next = std::stoi(comm::parse_endpoint(options.rendezvous).port) < kPortMax;
      if (has_next || options.max_restarts == 0) return;
      throw Error(
          ErrorCode::kConfig,
          fmt::format("--rendezvous {}: it is the last port, and with --max-restarts the launching "
                      "processes use the next one too (give a lower port)",
                      options.rendezvous));
    });
  }
  failures.collect([&] {
    if (!options.hosts.empty() && options.secret_file.empty()) return;  // one is made
    options.secret_file.empty() ? (void)secret_of_environment()
                                : (void)read_secret(options.secret_file);
  });
  failures.throw_if_any("cannot start");
}

// The options of a run on the machines of a host file. Rank 0 is on the first of them.
config::Options on_hosts(config::Options options, const HostFile& file) {
  options.nodes = static_cast<int64_t>(file.hosts.size());
  options.ranks = file.ranks_on_host;
  options.node_rank = 0;
  if (options.rendezvous.empty()) {
    options.rendezvous = address_of_host(file.hosts.front()) + ":29500";
  }
  return options;
}

// "--secret-file -" is how a machine of a host file gets the secret.
bool takes_input(config::Options& options) {
  if (options.secret_file != "-") return false;
  take_secret_from_input();
  options.secret_file.clear();
  return true;
}

}  // namespace

int run_launch(const config::Options& given, const std::vector<std::string>& command) {
  if (command.empty()) {
    throw Error(ErrorCode::kUsage,
                "launch: no command is given (strata launch --ranks 2 -- train ...)");
  }
  if (command[0] == "strata") {
    throw Error(
        ErrorCode::kUsage,
        "launch: strata: strata launch starts it by itself (leave that word out: strata launch "
        "--ranks 2 -- train ...)");
  }
  if (command[0] != "train") {
    throw Error(ErrorCode::kUsage, "launch: " + command[0] +
                                       ": does not run with several ranks (strata launch --ranks 2 "
                                       "-- train ...)");
  }
  for (const std::string& arg : command) {
    if (arg != "--ranks" && !arg.starts_with("--ranks=")) continue;
    throw Error(ErrorCode::kUsage,
                "ranks: strata launch gives it to the command that it starts (leave it out behind "
                "--, and give it "
                "before)");
  }
  config::Options options = given;
  const bool ends_with_input = takes_input(options);
  std::optional<HostFile> hosts;
  if (!options.hosts.empty()) {
    hosts = read_host_file(options.hosts);
    options = on_hosts(options, *hosts);
  }
  require_nodes(options);
  const int64_t ranks = options.nodes * options.ranks;
  std::vector<std::string> args = command;
  args.insert(args.end(), {"--ranks", std::to_string(ranks)});
  // Mistakes are reported once, before any process is started.
  config::DeepspeedReport report;
  const config::Options all =
      resolved_options(config::Command::kTrain, {args.begin() + 1, args.end()}, false, report);
  if (all.help) {
    std::fputs(config::help_text(config::Command::kTrain).c_str(), stdout);
    return 0;
  }
  if (hosts) return run_on_hosts(*hosts, options, command);
  return LaunchedRun(options, command, all, ends_with_input).run();
}

}  // namespace strata::cli
