// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/step_bench_yardstick.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "engine/base/error.h"

namespace strata::bench {
namespace {

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char letter : word) text += letter == '\'' ? "'\\''" : std::string(1, letter);
  return text + "'";
}

std::string output_of(const std::vector<std::string>& words) {
  std::string command = "DS_ACCELERATOR=cpu";
  for (const std::string& word : words) command += " " + quoted(word);
  command += " 2>&1";
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (!pipe) throw system_error(ErrorCode::kIo, "cannot run " + words[0], errno);
  std::string text;
  char part[4096];
  for (size_t got; (got = std::fread(part, 1, sizeof part, pipe)) > 0;) text.append(part, got);
  if (::pclose(pipe) != 0) {
    throw Error(ErrorCode::kIo, fmt::format("{} failed:\n{}", words[1], text));
  }
  return text;
}

// The number behind the last `label` of a text.
double number_after(const std::string& text, const std::string& label) {
  const size_t at = text.rfind(label);
  if (at == std::string::npos) {
    throw Error(ErrorCode::kIo, fmt::format("no \"{}\" in the output:\n{}", label, text));
  }
  return std::strtod(text.c_str() + at + label.size(), nullptr);
}

void add_shape(const model::Architecture& a, const model::BatchShape& batch,
               std::vector<std::string>& words) {
  for (const int64_t number : {a.hidden, a.layers, a.heads, a.kv_heads, a.feed_forward,
                               a.vocabulary, batch.rows, batch.length}) {
    words.push_back(std::to_string(number));
  }
}

}  // namespace

double torch_forward_backward_s(const Yardstick& yardstick, const model::Architecture& shape,
                                const model::BatchShape& batch, int steps) {
  std::vector<std::string> words = {yardstick.python, yardstick.script};
  add_shape(shape, batch, words);
  words.insert(words.end(), {"ckpt", std::to_string(steps)});
  return number_after(output_of(words), "fwdbwd ");
}

DeepSpeedResult deepspeed_step(const Yardstick& yardstick, const std::string& directory,
                               const model::Architecture& shape, const model::BatchShape& batch,
                               int micro_batches, int steps) {
  std::vector<std::string> words = {yardstick.python, yardstick.script, directory};
  add_shape(shape, batch, words);
  words.insert(words.end(), {std::to_string(micro_batches), "fp32", std::to_string(steps)});
  const std::string text = output_of(words);
  // The last line has the median step; lines of single steps have "step 0 3.50s".
  const size_t last = text.rfind("DS True");
  const std::string summary = last == std::string::npos ? text : text.substr(last);
  return {number_after(summary, " step "), 1e9 * number_after(summary, "maxrss ")};
}

}  // namespace strata::bench
