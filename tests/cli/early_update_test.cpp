// SPDX-License-Identifier: Apache-2.0
// The update that a checkpoint or an evaluation does not leave to the next step counts as its part.
#include "tests/cli/metrics_records.h"
#include "tests/cli/program.h"

namespace strata::cli::test {
namespace {

int64_t written_by(const std::string& run) {
  int64_t bytes = 0;
  for (const config::Json& step : metrics_of(run)) {
    bytes += step.find("nvme_write_bytes")->int64().value_or(0);
  }
  return bytes;
}

TEST(EarlyUpdate, IsPartOfTheNextStep) {
  const Sandbox sandbox;
  make_model(sandbox, "model", {.layers = 4, .hidden = 256});
  std::string budget = "1MiB";
  int64_t expected = 0;
  for (const char* every : {"100", "1", "3"}) {
    const auto train = [&] {
      return Process({"train",
                      "--model",
                      "model",
                      "--data",
                      STRATA_TEXT,
                      "--out",
                      std::string("every-") + every,
                      "--machine",
                      STRATA_MACHINE,
                      "--sequence-length",
                      "32",
                      "--steps",
                      "7",
                      "--checkpoint-every",
                      every,
                      "--optimizer-mode",
                      "deferred",
                      "--nvme",
                      ".",
                      "--offload",
                      "nvme",
                      "--host-memory",
                      budget},
                     {.directory = sandbox.path()});
    };
    Process first = train();
    if (first.wait() != 0) {
      budget = std::to_string(least_mib(first.err())) + "MiB";
      Process again = train();
      ASSERT_EQ(again.wait(), 0) << again.err();
    }
    const int64_t bytes = written_by(sandbox / (std::string("every-") + every));
    if (expected == 0) expected = bytes;
    EXPECT_GT(bytes, 0);
    EXPECT_EQ(bytes, expected) << every;
  }
}

}  // namespace
}  // namespace strata::cli::test
