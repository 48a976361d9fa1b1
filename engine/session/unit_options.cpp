// SPDX-License-Identifier: Apache-2.0
#include "engine/session/unit_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/config/limits.h"

namespace strata::session {
namespace {

constexpr std::string_view kKeys[] = {
    "host_memory", "nvme",         "nvme_rate",  "recipe",      "accumulate",  "threads", "betas",
    "eps",         "weight_decay", "decay_all",  "clip",        "freeze",      "groups",  "io",
    "io_deadline", "ranks",        "zero_stage", "shard_ranks", "reduce_dtype"};

}  // namespace

config::Options unit_options(const std::string& json) {
  config::Json object = config::Json::parse(json.empty() ? "{}" : json, "options");
  if (!object.is_object()) {
    throw Error(ErrorCode::kConfig, "cannot read options: the JSON text is " + object.describe() +
                                        " (give an object with options by name)");
  }
  for (const config::JsonMember& member : object.members()) {
    if (std::ranges::count(kKeys, member.name) > 0) continue;
    throw Error(ErrorCode::kUsage, fmt::format("options: {}: declared units have no such option "
                                               "(use one of {})",
                                               member.name, fmt::join(kKeys, ", ")));
  }
  object.set("model", "declared units");  // the command needs one
  config::Options options = config::options_from_json(config::Command::kPlan, object.dump());
  if (options.threads == 0) options.threads = config::read_limits().cores;
  return options;
}

}  // namespace strata::session
