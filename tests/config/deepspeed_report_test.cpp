// SPDX-License-Identifier: Apache-2.0
// What became of a DeepSpeed file is said once it is read, also where options are refused, and
// knows what flags and TOML files override.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/config/json.h"
#include "tests/config/deepspeed_file.h"

namespace strata::config::test {
namespace {

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(DeepspeedReport, TheTableSaysWhatIsOverriddenAndByWhat) {
  const std::string text = R"({"gradient_clipping": 2, "optimizer": {"params": {"lr": 0.25}},
                               "scheduler": {"params": {"total_num_steps": 9}}})";
  const std::vector<GivenOption> given = {
      {"clip", "3", "run.toml:1:1: clip"}, {"lr", "1", "--lr"}, {"epochs", "2", "--epochs"}};
  const DeepspeedImport import = import_deepspeed(text, "ds.json", 1, given);
  EXPECT_EQ(line_of(import, "optimizer.params.lr").text(),
            "overridden by --lr (it would be --lr 0.25)");
  EXPECT_EQ(line_of(import, "optimizer.params.lr").fate, ImportFate::kIgnored);
  EXPECT_EQ(line_of(import, "gradient_clipping").text(),
            "overridden by run.toml:1:1: clip (it would be --clip 2)");
  EXPECT_EQ(line_of(import, "scheduler.params.total_num_steps").text(),
            "overridden by --epochs (it would be --steps 9)");
  EXPECT_EQ(line_of(import, "optimizer.params.eps").fate, ImportFate::kBecame);
}

TEST(DeepspeedReport, AsJsonSaysWhatAKeyBecameAndWhy) {
  const DeepspeedImport import = import_deepspeed(
      R"({"gradient_clipping": 2, "wandb": {"enabled": 1}, "optimizer": {"params": {"lr": 0.5}}})",
      "ds.json", 1, std::vector<GivenOption>{{"lr", "1", "--lr"}});
  const Json lines = import_json(import);
  EXPECT_EQ(lines.items()[0].dump(),
            R"({"key": "gradient_clipping", "value": "2", "fate": "became", )"
            R"("became": "--clip 2", "why": null})");
  EXPECT_TRUE(lines.items()[1].find("became")->is_null());
  EXPECT_EQ(lines.items()[2].find("why")->string(), "overridden by --lr (it would be --lr 0.5)");
  EXPECT_TRUE(lines.items()[2].find("became")->is_null());
  for (const Json& line : lines.items()) {
    if (line.find("key")->string() != "optimizer.params.eps") continue;
    EXPECT_EQ(line.find("became")->string(), "--eps 1e-8");
    EXPECT_EQ(line.find("why")->string(), "absent in the file, DeepSpeed's default");
  }
}

TEST(DeepspeedReport, KnowsTheFlags) {
  DeepspeedReport report;
  resolve_command_line(
      Command::kPlan,
      std::vector<std::string>{"--model", "m", "--ranks", "2", "--clip=3", "--deepspeed", kExample},
      &report);
  EXPECT_HAS(report.table, "What became of " + kExample + ":\n");
  EXPECT_HAS(report.table, "overridden by --clip (it would be --clip 0.5)");
  EXPECT_FALSE(report.wants_json);
  EXPECT_FALSE(report.is_refusal);
}

// Options and the report of a refused command line.
DeepspeedReport refused(const std::string& deepspeed, std::vector<std::string> args,
                        const std::string& toml = "") {
  DeepspeedReport report;
  args.insert(args.end(), {"--model", "m"});
  EXPECT_THROW(resolve(Command::kPlan,
                       {.toml = toml,
                        .toml_name = "run.toml",
                        .deepspeed = deepspeed,
                        .deepspeed_name = "ds.json",
                        .args = args},
                       &report),
               Error);
  return report;
}

TEST(DeepspeedReport, IsThereWhereKeysAreRefused) {
  const std::string wrong = R"({"gradient_clipping": 2, "optimizer": {"type": "Lamb"}})";
  const DeepspeedReport table = refused(wrong, {});
  EXPECT_TRUE(table.is_refusal);
  EXPECT_HAS(table.table, "refused: AdamW is the only optimizer here");
  EXPECT_HAS(table.table, "--clip 2");
  for (const auto& report : {refused(wrong, {"--json"}), refused(wrong, {}, "json = true"),
                             refused(wrong, {"--json=on"})}) {
    EXPECT_TRUE(report.wants_json && report.is_refusal);
    const Json& lines = report.lines;
    EXPECT_EQ(lines.items()[1].find("key")->string(), "optimizer.type");
    EXPECT_EQ(lines.items()[1].find("fate")->string(), "refused");
    EXPECT_TRUE(lines.items()[1].find("became")->is_null());
    EXPECT_EQ(lines.items()[1].find("why")->string(), "AdamW is the only optimizer here");
  }
  EXPECT_FALSE(refused(R"({"gradient_clipping": 2})", {"--lr", "-1"}).is_refusal);
}

TEST(DeepspeedReport, IsOfCommandsThatTakeTheFile) {
  DeepspeedReport report;
  resolve_command_line(Command::kDoctor, {}, &report);
  EXPECT_EQ(report.table, "");
  EXPECT_TRUE(report.lines.is_null());
  EXPECT_THROW(
      resolve_command_line(Command::kDoctor,
                           std::vector<std::string>{"--deepspeed", "nowhere.json"}, &report),
      Error);
  EXPECT_EQ(report.table, "");
  EXPECT_TRUE(report.lines.is_null());
}

}  // namespace
}  // namespace strata::config::test
