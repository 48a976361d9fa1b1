// SPDX-License-Identifier: Apache-2.0
// Trains a model directory on text with the library, and says what it does.
//
//   train_text MODEL TEXT OUT SCRATCH     OUT: of the run; SCRATCH: a directory on a drive
#include <cstdio>
#include <string>

#include "engine/engine.h"

// A JSON string; paths of this example need no escapes but these.
static std::string quoted(const std::string& text) {
  std::string all = "\"";
  for (const char c : text) all += (c == '"' || c == '\\') ? std::string{'\\', c} : std::string{c};
  return all + "\"";
}

int main(int argc, char** argv) try {
  if (argc != 5) {
    std::fprintf(stderr, "usage: train_text MODEL TEXT OUT SCRATCH\n");
    return 2;
  }
  const std::string options = "{\"model\": " + quoted(argv[1]) + ", \"data\": " + quoted(argv[2]) +
                              ", \"out\": " + quoted(argv[3]) + ", \"nvme\": [" + quoted(argv[4]) +
                              "], \"host_memory\": \"128MiB\", \"steps\": 30, \"lr\": 2e-3, "
                              "\"sequence_length\": 64, \"micro_batch\": 2}";
  strata::Sinks sinks;
  sinks.log = [](strata::LogLevel, std::string_view line) {
    std::fprintf(stderr, "%s\n", strata::printable(line).c_str());
  };
  strata::Session session = strata::Session::open(options, sinks);
  const strata::PlanText plan = session.plan();
  std::printf("%s\n", plan.text.c_str());
  if (!plan.fits) return 3;
  strata::TrainHandlers handlers;
  handlers.step = [](const strata::StepReport& step) {
    if (step.step % 10 == 0) {
      std::printf("step %lld  loss %.4f\n", static_cast<long long>(step.step), step.loss);
    }
  };
  const strata::TrainReport report = session.train(handlers);
  std::printf("loss %.4f at first, %.4f at last; state %016llx; model in %s\n", report.first_loss,
              report.last_loss, static_cast<unsigned long long>(report.state_hash),
              report.model.c_str());
  return report.last_loss < report.first_loss ? 0 : 1;
} catch (const strata::Error& error) {
  std::fprintf(stderr, "train_text: %s\n", error.what());
  return error.exit_code();
}
