// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "bindings/cli/commands.h"
#include "engine/base/clock.h"
#include "engine/session/model_use.h"

namespace strata::cli {

namespace {

// Shows progress on standard error, on a line that the caller keeps.
train::WorkProgress shown_on(train::WorkLine& line) {
  return [&line](std::string_view what, int64_t done, int64_t total) {
    std::fputs(line.at(what, done, total, now_s()).c_str(), stderr);
  };
}

}  // namespace

int run_eval(const config::Options& options) {
  train::WorkLine line(isatty(STDERR_FILENO) == 1);
  const train::Inference::Loss loss = session::evaluate_model(options, shown_on(line));
  if (options.json) {
    config::Json json = config::Json::object();
    json.set("loss", loss.mean);
    json.set("perplexity", std::exp(loss.mean));
    json.set("tokens", loss.tokens);
    std::puts(json.dump().c_str());
  } else {
    std::printf("loss %.6f, perplexity %.3f, over %lld tokens\n", loss.mean, std::exp(loss.mean),
                static_cast<long long>(loss.tokens));
  }
  return 0;
}

int run_generate(const config::Options& options) {
  train::WorkLine line(isatty(STDERR_FILENO) == 1);
  session::Generation generation(options, shown_on(line));
  std::string text;
  const auto emit = [&](const std::string& piece) {  // with --json the text is printed at the end
    text += piece;
    if (!options.json) std::fputs(piece.c_str(), stdout);
    std::fflush(stdout);
  };
  const auto emit_after_prompt = [&](const std::string& piece) {
    if (text.empty()) emit(options.prompt);  // not before the progress of loading is erased
    emit(piece);
  };
  generation.run(emit_after_prompt);
  if (!options.json) {
    std::puts("");
    return 0;
  }
  config::Json json = config::Json::object();
  json.set("prompt", options.prompt);
  json.set("text", text);
  json.set("new_tokens", generation.new_tokens());
  std::puts(json.dump().c_str());
  return 0;
}

int run_export(const config::Options& options) {
  const session::Exported exported = session::export_model(options);
  if (options.json) {
    config::Json json = config::Json::object();
    json.set("model", options.out);
    json.set("step", exported.step);
    json.set("notes", config::Json::Array(exported.notes.begin(), exported.notes.end()));
    std::puts(json.dump().c_str());
  } else {
    std::printf("%s: exported step %lld\n", options.out.c_str(),
                static_cast<long long>(exported.step));
  }
  return 0;
}

}  // namespace strata::cli
