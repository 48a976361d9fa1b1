// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/run_start.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <string_view>

#include "engine/checkpoint/checkpoint.h"
#include "engine/config/json.h"
#include "engine/config/mesh_option.h"
#include "engine/config/option_table.h"
#include "engine/train/run_directory.h"

namespace strata::cli {
namespace {

// Which file a path names now. It is another one when it has been written anew.
std::string identity_of(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return "";
  return fmt::format("{} {} {} {}", info.st_dev, info.st_ino, info.st_ctim.tv_sec,
                     info.st_ctim.tv_nsec);
}

// The arguments but for these options and their values.
std::vector<std::string> without(const std::vector<std::string>& args,
                                 std::initializer_list<std::string_view> names) {
  std::vector<std::string> rest;
  for (size_t at = 0; at < args.size(); ++at) {
    const std::string& arg = args[at];
    const std::string name = arg.substr(0, arg.find('='));
    const config::OptionRow* row =
        name.starts_with("--") ? config::find_option(name.substr(2)) : nullptr;
    if (row == nullptr || std::ranges::find(names, row->name) == names.end()) {
      rest.push_back(arg);
      continue;
    }
    const bool has_next = at + 1 < args.size() && !args[at + 1].starts_with("--");
    const bool takes_next =
        arg.size() == name.size() && row->type != config::OptionType::kSwitch && has_next;
    if (takes_next) ++at;
  }
  return rest;
}

// The mesh of a run as it is for another number of ranks.
std::string mesh_of(const config::Options& options, int64_t ranks) {
  const int64_t same_copy = options.ranks / options.copies();
  return fmt::format("shard={},replicate={},tensor={},pipeline={},context={}",
                     options.shards() / options.context_ranks, ranks / same_copy,
                     options.tensor_ranks, options.pipeline_ranks, options.context_ranks);
}

// A start takes the directory with run.json. With a named checkpoint it sets later ones aside after
// that and before plan.json, and until then a start must name the checkpoint again.
std::string record_of(const config::Options& options) {
  const bool names_checkpoint = !options.resume_checkpoint.empty();
  return options.out + "/" + (names_checkpoint ? train::kPlanFile : train::kRunFile);
}

}  // namespace

bool keeps_shards(const config::Options& options) {
  return options.names_shards ||
         (options.is_given("mesh") && !config::chooses_mesh(options) && options.copies() > 1);
}

RunStart::RunStart(std::vector<std::string> args, const config::Options& options)
    : args_(std::move(args)),
      options_(options),
      record_(record_of(options)),
      before_(identity_of(record_)) {}

bool RunStart::has_directory() const {
  const std::string now = identity_of(record_);
  return !now.empty() && now != before_;
}

std::vector<std::string> RunStart::arguments(const StartArguments& start) const {
  std::vector<std::string> args = args_;
  if (start.resumes) {
    args = without(args, {"resume", "force", "out"});
    // As many ranks go on with the mesh of the run and its micro-batches, also where --mesh auto
    // would choose others.
    if (!start.changes_ranks) args = without(args, {"mesh", "accumulate"});
    args.insert(args.end(), {"--out", options_.out, "--resume"});
    if (start.changes_ranks) args.emplace_back("--force");
  }
  if (start.accumulate > 0) {
    args = without(args, {"accumulate"});
    args.insert(args.end(), {"--accumulate", std::to_string(start.accumulate)});
  }
  if (start.ranks != options_.ranks && keeps_shards(options_)) {
    args = without(args, {"mesh"});
    args.insert(args.end(), {"--mesh", mesh_of(options_, start.ranks)});
  }
  args.insert(args.end(), {"--ranks", std::to_string(start.ranks)});
  return args;
}

bool RunStart::is_complete() const {
  const std::string path = options_.out + "/" + train::kSummaryFile;
  if (!std::filesystem::exists(path)) return false;
  const config::Json summary = config::Json::read_file(path);
  const config::Json* stopped = summary.find("stopped");
  return stopped != nullptr && stopped->boolean() == false;
}

int64_t RunStart::step() const {
  if (!has_directory()) return 0;
  const config::Json about = config::Json::read_file(options_.out + "/" + train::kRunFile);
  const config::Json* run = about.find("run");
  if (run == nullptr || !run->is_string()) return 0;
  return checkpoint::find_checkpoint(options_.out + "/" + train::kCheckpointsFolder,
                                     checkpoint::CheckpointCheck::kManifest, run->string())
      .step;
}

}  // namespace strata::cli
