// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string>
#include <utility>

#include "engine/base/error.h"
#include "engine/config/foreign_rules.h"

namespace strata::config {
namespace {

// Keys that only one program has, looked for in this order.
constexpr std::pair<std::string_view, ForeignTool> kSigns[] = {
    {"base_model", kAxolotl},
    {"finetuning_type", kLlamaFactory},
    {"stage", kLlamaFactory},
    {"cutoff_len", kLlamaFactory},
    {"dataset_dir", kLlamaFactory},
    {"template", kLlamaFactory},
    {"iters", kMlxLm},
    {"fine_tune_type", kMlxLm},
    {"mask_prompt", kMlxLm},
    {"lora_parameters", kMlxLm},
    {"adapter_path", kMlxLm},
    {"model_name_or_path", kTrl},
    {"dataset_name", kTrl},
    {"per_device_train_batch_size", kTrl}};

}  // namespace

std::string_view name_of(ForeignTool tool) {
  switch (tool) {
    case kAxolotl:
      return "Axolotl";
    case kLlamaFactory:
      return "LLaMA-Factory";
    case kMlxLm:
      return "mlx-lm";
    case kTrl:
      return "TRL";
  }
  return "";
}

ForeignTool tool_of(const Json& root, const std::string& name) {
  for (const auto& [key, tool] : kSigns) {
    if (root.find(key) != nullptr) return tool;
  }
  throw Error(ErrorCode::kConfig,
              fmt::format("read configuration: {}: it has no key that is typical of Axolotl "
                          "(base_model), LLaMA-Factory (finetuning_type), mlx-lm (iters) or TRL "
                          "(model_name_or_path) (write options of strata as TOML, in a file named "
                          ".toml)",
                          name));
}

}  // namespace strata::config
