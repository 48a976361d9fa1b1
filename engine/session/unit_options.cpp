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
    "host_memory",  "nvme",   "nvme_rate",     "recipe",     "accumulate", "threads",
    "betas",        "eps",    "weight_decay",  "decay_all",  "clip",       "freeze",
    "groups",       "io",     "io_deadline",   "ranks",      "zero_stage", "shard_ranks",
    "reduce_dtype", "device", "device_memory", "plugin_path"};

void require_right_device(const config::Json& given, const config::Options& options) {
  const auto refuse = [](const char* what) { throw Error(ErrorCode::kConfig, what); };
  if (options.device == config::Device::kAuto && given.find("device") != nullptr) {
    refuse("device: auto: the caller computes, and knows where (give cpu, cuda or cuda:N)");
  }
  const config::DeviceKind kind = config::kind_of(options.device);
  if (kind == config::DeviceKind::kUnified) {
    refuse(
        "device: unified: a session has state in memory of the device, or of the host (give cuda)");
  }
  if (!config::row_of(kind).discrete) return;
  if (options.device_memory == 0) {
    refuse(
        "device-memory: not given (give how much of the device's memory the session may take; the "
        "rest is for what the caller computes)");
  }
  if (kind == config::DeviceKind::kCuda && options.ranks > 1) {
    refuse(
        "ranks: sessions that share their state over ranks have weights in host memory (leave out "
        "device, or ranks)");
  }
}

}  // namespace

LibraryOptions library_options(const std::string& json) {
  const config::Json object = config::Json::parse(json, "options");
  if (!object.is_object() || object.find("plugin_path") == nullptr) return {json, ""};
  config::Json others = config::Json::object();
  std::string plugin_path;
  for (const config::JsonMember& member : object.members()) {
    if (member.name != "plugin_path") {
      others.set(member.name, member.value);
    } else if (member.value.is_string()) {
      plugin_path = member.value.string();
    } else {
      throw Error(ErrorCode::kUsage, "options: plugin_path: " + member.value.describe() +
                                         " (give the path of a folder)");
    }
  }
  return {others.dump(), std::move(plugin_path)};
}

config::Options unit_options(const std::string& json) {
  const LibraryOptions given = library_options(json.empty() ? "{}" : json);
  config::Json object = config::Json::parse(given.json, "options");
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
  options.plugin_path = given.plugin_path;
  if (options.threads == 0) options.threads = config::read_limits().cores;
  require_right_device(object, options);
  if (scales_loss(options.recipe)) {
    throw Error(
        ErrorCode::kConfig,
        "recipe: fp16: needs a scaled loss, and the caller computes it (give fp32 or bf16)");
  }
  return options;
}

}  // namespace strata::session
