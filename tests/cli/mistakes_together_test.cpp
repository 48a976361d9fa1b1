// SPDX-License-Identifier: Apache-2.0
// Several mistakes in one command are told together, as far as one can be found while another is
// there, whichever files and directories they are in.
#include "tests/cli/mistake.h"

namespace strata::cli::test {
namespace {

TEST_F(Mistakes, InSeveralPlacesAreToldTogether) {
  const auto closed = [](const Sandbox& sandbox) {
    std::filesystem::create_directories(sandbox / "notes");
    write_text(sandbox / "notes/todo.txt", "x");
  };
  const std::string no_model = "\n  cannot open model: nowhere: there is no such directory";
  const std::string no_data = "\n  open data: gone.txt: ";
  Arguments all = train({"--data", "gone.txt", "--nvme", "drive", "--resume", "step"}, "nowhere");
  all[4] = "notes";
  all[6] = "machine.toml";
  expect_refusals({
      {"train",
       closed,
       all,
       kUsage,
       {"cannot start: 6 problems", no_model, no_data, "\n  nvme: drive: ", "machine.toml",
        "step: ", "notes: it has todo.txt and no run.json"}},
      {"what is asked of a model",
       {},
       train({"--sequence-length", "4096", "--freeze", "none", "--data", "gone.txt"}),
       kUsage,
       {"3 problems", "positions up to 2048", "freeze: \"none\"", no_data}},
      {"what is not built",
       {},
       {"eval", "--model", "good", "--data", "gone.txt", "--device", "cuda"},
       kUsage,
       {"2 problems", "device: cuda: ", no_data}},
      {"plan",
       {},
       {"plan", "--model", "nowhere", "--data", "gone.txt", "--nvme", "drive"},
       kUsage,
       {"cannot start: 3 problems", no_model, no_data, "\n  nvme: drive: "}},
      {"eval",
       {},
       {"eval", "--model", "nowhere", "--data", "gone.txt", "--nvme", "drive", "--resume", "step"},
       kUsage,
       {"cannot start: 4 problems", no_model, no_data, "step: "}},
      {"generate",
       {},
       {"generate", "--model", "nowhere", "--nvme", "drive"},
       kUsage,
       {"cannot start: 2 problems", no_model}},
      {"export",
       {},
       {"export", "--model", "nowhere", "--resume", "step", "--out", "good"},
       kUsage,
       {"cannot start: 3 problems", no_model, "good: exists already"}},
      {"init",
       {},
       {"init", "--data", "gone.txt", "--out", "good"},
       kUsage,
       {"cannot start: 2 problems", no_data, "good: exists already"}},
      {"files with options",
       {},
       train({"--config", "gone.toml", "--deepspeed", "gone.json"}),
       kUsage,
       {"cannot read files with options: 2 problems", "gone.toml", "gone.json"}},
  });
}

TEST_F(Mistakes, InOnePlaceAreToldAsTheyAre) {
  Process run(train({"--data", "gone.txt"}), {.directory = sandbox_.path()});
  EXPECT_EQ(run.wait(), kUsage);
  EXPECT_EQ(
      run.err(),
      "strata: error: open data: gone.txt: No such file or directory (give a file or directory "
      "that can be read)\n");
}

// A run's directory is held while the rest is looked at, and left as it was.
TEST_F(Mistakes, BesideARunThatIsThereAlready) {
  make_run();
  Arguments arguments = train({"--data", "gone.txt"}, "nowhere");
  arguments[4] = "run";
  expect_refusal({"a run",
                  {},
                  arguments,
                  kUsage,
                  {"3 problems", "no such directory", "gone.txt", "run: already has a run"}});
}

}  // namespace
}  // namespace strata::cli::test
