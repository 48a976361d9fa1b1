// SPDX-License-Identifier: Apache-2.0
// Mistakes with runs that exist: directories and drives that another run holds, checkpoints that
// are damaged or of another model. Each is refused by name, and what is there stays as it is.
#include "tests/cli/mistake.h"

namespace strata::cli::test {
namespace {

// A run that goes on until it is told to stop.
Arguments long_run(const std::string& out, const Arguments& more = {}) {
  Arguments arguments = {
      "train",     "--model",      "good",    "--data",     STRATA_TEXT,         "--out", out,
      "--machine", STRATA_MACHINE, "--steps", "1000000000", "--sequence-length", "32"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST_F(Mistakes, ADirectoryThatARunHolds) {
  const Sandbox place;
  Process holder(long_run(place / "held"), {.directory = sandbox_.path()});
  ASSERT_TRUE(holder.prints("step 1/")) << holder.err();
  for (const char* flag : {"--resume", "--force"}) {
    Arguments second = train_into(place / "held");
    second.emplace_back(flag);
    expect_refusal({flag, {}, second, kUsage, {"in use by pid", "strata train"}});
  }
  holder.kill(SIGTERM);
  EXPECT_EQ(holder.wait(), 0) << holder.err();
}

TEST_F(Mistakes, AScratchDirectoryThatARunHolds) {
  const Sandbox place;
  std::filesystem::create_directory(place / "scratch");
  make_model(sandbox_, "wide", {.layers = 4, .hidden = 96});
  const Arguments nvme = {"--nvme", place / "scratch", "--offload",
                          "nvme",   "--host-memory",   "1MiB"};
  // The refusal says with which budget it goes; with that one the drive is needed.
  Arguments least = long_run(place / "run", nvme);
  least[2] = "wide";
  Process refused(least, {.directory = sandbox_.path()});
  ASSERT_EQ(refused.wait(), kDoesNotFit) << refused.err();
  least.back() = std::to_string(least_mib(refused.err())) + "MiB";
  Process holder(least, {.directory = sandbox_.path()});
  ASSERT_TRUE(holder.prints("step 1/")) << holder.err();
  expect_refusal({"scratch in use",
                  {},
                  train({"--nvme", place / "scratch", "--offload", "nvme"}),
                  kUsage,
                  {"in use by pid", "strata"}});
  holder.kill(SIGTERM);
  EXPECT_EQ(holder.wait(), 0) << holder.err();
  EXPECT_TRUE(std::filesystem::is_empty(place / "scratch"));
}

TEST_F(Mistakes, WithCheckpoints) {
  make_run();
  make_model(sandbox_, "other", {.hidden = 48});
  const std::string last = "run/checkpoints/step-000002";
  const auto resume = [&](const std::string& model, const std::string& checkpoint) {
    Arguments arguments = train({"--resume", checkpoint, "--steps", "3"}, model);
    arguments[4] = "run";
    return arguments;
  };
  const auto without_value = [&](const Arguments& arguments) {
    Arguments all = arguments;
    all.insert(all.end(), {"--data", STRATA_TEXT, "--resume"});
    return all;
  };
  const auto damaged = [&](const std::string& file,
                           const std::function<void(std::string&)>& damage) {
    return [=](const Sandbox& sandbox) {
      std::filesystem::remove_all(sandbox / "damaged");
      std::filesystem::copy(sandbox / last, sandbox / "damaged");
      std::string bytes = read_text(sandbox / ("damaged/" + file));
      damage(bytes);
      write_text(sandbox / ("damaged/" + file), bytes);
    };
  };
  // In every plane of every chunk.
  const auto flip_all = [](std::string& bytes) {
    for (size_t at = 0; at < bytes.size(); at += 512) bytes[at] ^= 0x40;
  };
  const auto flip = [](std::string& bytes) { bytes[bytes.size() / 8] ^= 0x40; };
  const auto cut = [](std::string& bytes) { bytes.resize(bytes.size() / 2); };
  const std::string state = "state-rank00000.bin";
  expect_refusals({
      {"no such checkpoint",
       {},
       resume("good", "nowhere"),
       kUsage,
       {"nowhere", "no such checkpoint"}},
      {"no such checkpoint of this run",
       {},
       resume("good", "run/checkpoints/step-000099"),
       kUsage,
       {"no such checkpoint; the newest is run/checkpoints/step-000002"}},
      {"no such checkpoint for a new run",
       {},
       train({"--resume", "nowhere"}),
       kUsage,
       {"nowhere", "no such checkpoint"}},
      {"of another model",
       {},
       resume("other", last),
       kUsage,
       {"of another model", "hidden: 32 in the checkpoint, 48 here"}},
      {"of another model, the newest",
       {},
       without_value({"train", "--model", "other", "--out", "run"}),
       kUsage,
       {"of another model"}},
      {"of another recipe",
       {},
       {"eval", "--model", "good", "--data", STRATA_TEXT, "--resume", last, "--recipe", "fp32"},
       kUsage,
       {"recipe"}},
      {"a manifest cut short",
       damaged("manifest.json", cut),
       resume("good", "damaged"),
       kFailed,
       {"damaged/manifest.json", "use another checkpoint"}},
      {"a state file cut short",
       damaged(state, cut),
       resume("good", "damaged"),
       kFailed,
       {"damaged/" + state, "use another checkpoint"}},
      {"a flipped bit",
       damaged(state, flip),
       resume("good", "damaged"),
       kFailed,
       {"damaged/" + state, "checksum", "use another checkpoint"}},
      {"an earlier one than the newest",
       {},
       resume("good", "run/checkpoints/step-000001"),
       kUsage,
       {"is of step 1", "goes up to step 2", "--force"}},
      {"export without a checkpoint",
       {},
       {"export", "--model", "good", "--out", "out"},
       kUsage,
       {"no checkpoint given"}},
      {"export over its own model",
       {},
       {"export", "--model", "good", "--resume", "damaged", "--out", "./good", "--force"},
       kUsage,
       {"out: ./good: is the model that the export reads"}},
      {"more ranks than a machine can connect",
       {},
       {"launch", "--ranks", "1000", "--", "train", "--model", "good"},
       kUsage,
       {"ranks: 1000 are more than 128 on one machine"}},
      {"export of a damaged one",
       damaged(state, flip_all),
       {"export", "--model", "good", "--resume", "damaged", "--out", "out"},
       kFailed,
       {"checksum"}},
      {"eval of no checkpoint in particular",
       {},
       without_value({"eval", "--model", "good"}),
       kUsage,
       {"no checkpoint given"}},
      {"generate with another model's",
       {},
       {"generate", "--model", "other", "--prompt", "A", "--resume", last},
       kUsage,
       {"--model other has another config.json (checkpoint: good) (give the model that it was "
        "trained from)"}},
  });
}

}  // namespace
}  // namespace strata::cli::test
