// SPDX-License-Identifier: Apache-2.0
#include "engine/model/quantization.h"

#include <fmt/core.h>

#include <string_view>

#include "engine/base/advice.h"
#include "engine/base/error.h"

namespace strata::model {
namespace {

using config::Json;

constexpr const char* kMember = "quantization_config";
constexpr int64_t kBlockMost = 1 << 20;

// Advice for a quantization method that cannot be read.
struct Method {
  std::string_view name;
  const char* advice;
};

constexpr const char* kUseTheOriginal =
    "its rounding cannot be undone: use the bf16 model that it was made from";

constexpr Method kMethods[] = {
    {"bitsandbytes",
     "use the bf16 model that it was made from, or convert it: load it with Transformers, then "
     "dequantize() and save_pretrained()"},
    {"gptq", kUseTheOriginal},
    {"awq", kUseTheOriginal},
    {"aqlm", kUseTheOriginal},
    {"hqq", kUseTheOriginal},
    {"compressed-tensors",
     "convert it to bf16: load it with Transformers and run_compressed=False, then "
     "save_pretrained()"},
    {"mxfp4",
     "convert it to bf16: load it with Transformers and Mxfp4Config(dequantize=True), then "
     "save_pretrained()"},
    {"fbgemm_fp8", "use the bf16 model that it was made from"},
};
constexpr const char* kOtherAdvice =
    "use the unquantized model, or convert it to bf16 with Transformers first";

[[noreturn]] void refuse_quantization(const std::string& source, const std::string& cause) {
  throw Error(ErrorCode::kConfig, "cannot use model: " + source + ": " + kMember +
                                      with_advice(cause, "fetch the model's own config.json"));
}

Fp8Blocks read_blocks(const Json& quantization, const std::string& source) {
  const Json* size = quantization.find("weight_block_size");
  const bool pair = size != nullptr && size->is_array() && size->items().size() == 2;
  Fp8Blocks blocks;
  if (pair) {
    blocks.rows = size->items()[0].int64().value_or(0);
    blocks.cols = size->items()[1].int64().value_or(0);
  }
  const auto possible = [](int64_t extent) { return extent >= 1 && extent <= kBlockMost; };
  if (possible(blocks.rows) && possible(blocks.cols)) return blocks;
  refuse_quantization(source,
                      fmt::format(".weight_block_size: is {}, FP8 weights are read with scales for "
                                  "blocks such as [128, 128] (convert the model to bf16 first)",
                                  size == nullptr ? "missing" : size->describe()));
}

}  // namespace

std::optional<Fp8Blocks> read_quantization(const Json& json, const std::string& source) {
  const Json* quantization = json.find(kMember);
  if (quantization == nullptr || quantization->is_null()) {
    const Json* text = json.find("text_config");
    if (text == nullptr || !text->is_object()) return std::nullopt;
    quantization = text->find(kMember);
  }
  if (quantization == nullptr || quantization->is_null()) return std::nullopt;
  if (!quantization->is_object()) {
    refuse_quantization(source,
                        fmt::format(": is {}, and must be an object", quantization->describe()));
  }
  const Json* method = quantization->find("quant_method");
  const std::string name = method != nullptr && method->is_string() ? method->string() : "";
  if (name == "fp8") return read_blocks(*quantization, source);
  const char* advice = kOtherAdvice;
  for (const Method& row : kMethods) {
    if (name == row.name) advice = row.advice;
  }
  refuse_quantization(
      source, fmt::format(": weights quantized by {} cannot be read ({})",
                          name.empty() ? "a method without name" : "\"" + name + "\"", advice));
}

Json without_quantization(Json json) {
  const auto drop = [](Json& object) {
    std::erase_if(object.members(),
                  [](const config::JsonMember& member) { return member.name == kMember; });
  };
  drop(json);
  for (config::JsonMember& member : json.members()) {
    if (member.name == "text_config" && member.value.is_object()) drop(member.value);
  }
  return json;
}

}  // namespace strata::model
