// SPDX-License-Identifier: Apache-2.0
// Which types the weights of an exported model have: those that they came with, or with
// --export-dtype fp32 every bit that was trained. What is rounded is said, and how to keep it.
#include "engine/config/json.h"
#include "engine/model_files/model_directory.h"
#include "tests/cli/program.h"

namespace strata::cli::test {
namespace {

constexpr const char* kRounded =
    "weights that are BF16 here are BF16 in the exported model: trained weights are rounded "
    "(--export-dtype fp32 keeps every bit)";

class ExportTypes : public testing::Test {
 protected:
  void SetUp() override { make_model(sandbox_, "model", {}); }

  std::string run(const Arguments& arguments) {
    Process process(arguments, {.directory = sandbox_.path()});
    EXPECT_EQ(process.wait(), 0) << process.err();
    err_ = process.err();
    return process.out();
  }
  std::string train(const std::string& out, const Arguments& more, const char* model = "model") {
    Arguments all = {"train", "--model", model,       "--data",       STRATA_TEXT,
                     "--out", out,       "--machine", STRATA_MACHINE, "--sequence-length",
                     "32",    "--steps", "2",         "--lr",         "1e-2"};
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  }
  std::string weights_of(const std::string& name) {
    return read_text(sandbox_ / (name + "/model.safetensors"));
  }
  model::ModelDirectory open(const std::string& name) {
    return model::ModelDirectory::open(sandbox_ / name);
  }
  std::string loss(Arguments arguments) {
    arguments.insert(arguments.end(), {"--data", STRATA_TEXT, "--sequence-length", "32", "--recipe",
                                       "fp32", "--json"});
    return config::Json::parse(run(arguments), "eval").find("loss")->dump();
  }

  const Sandbox sandbox_;
  std::string err_;
};

TEST_F(ExportTypes, AreTheSourcesThoughF32IsTrained) {
  const std::string out = train("run", {"--recipe", "fp32"});
  EXPECT_NE(err_.find(std::string("export: ") + kRounded), std::string::npos) << err_;
  EXPECT_NE(out.find(kRounded), std::string::npos) << out;
  EXPECT_EQ(weights_of("run/model").size(), weights_of("model").size());
  EXPECT_TRUE(open("run/model").has(DType::kBF16));
  EXPECT_FALSE(open("run/model").has(DType::kF32));
  EXPECT_EQ(open("run/model").config().dump(), open("model").config().dump());
}

TEST_F(ExportTypes, AreF32WithEveryTrainedBitWhereThatIsAskedFor) {
  const std::string out = train("run", {"--recipe", "fp32", "--export-dtype", "fp32"});
  EXPECT_EQ(out.find("rounded"), std::string::npos) << out;
  EXPECT_EQ(err_.find("rounded"), std::string::npos) << err_;
  EXPECT_FALSE(open("run/model").has(DType::kBF16));
  const std::string checkpoint = "run/checkpoints/step-000002";
  EXPECT_EQ(loss({"eval", "--model", "run/model"}),
            loss({"eval", "--model", "model", "--resume", checkpoint}));

  // A checkpoint has all bits, whatever was exported from it before.
  run({"export", "--model", "model", "--resume", checkpoint, "--out", "again", "--export-dtype",
       "fp32"});
  EXPECT_EQ(weights_of("again"), weights_of("run/model"));
  const auto json = config::Json::parse(
      run({"export", "--model", "model", "--resume", checkpoint, "--out", "small", "--json"}),
      "export");
  ASSERT_EQ(json.find("notes")->items().size(), 1u);
  EXPECT_EQ(json.find("notes")->items()[0].string(), kRounded);
  EXPECT_EQ(weights_of("small").size(), weights_of("model").size());
}

// The first export has the source's types; then all that is asked of the run are others.
TEST_F(ExportTypes, AFinishedRunMakesItsModelAgainInOthers) {
  train("run", {"--recipe", "fp32"});
  train("run", {"--recipe", "fp32", "--resume", "--export-dtype", "fp32"});
  EXPECT_EQ(err_.find("from here on"), std::string::npos) << err_;
  EXPECT_TRUE(open("run/model").has(DType::kF32));
  train("whole", {"--recipe", "fp32", "--export-dtype", "fp32"});
  EXPECT_EQ(weights_of("run/model"), weights_of("whole/model"));

  const std::string out = train("run", {"--recipe", "fp32", "--resume"});
  EXPECT_TRUE(open("run/model").has(DType::kF32)) << "nothing was asked of it";
  EXPECT_EQ((out + err_).find("rounded"), std::string::npos) << out << err_;
}

// A model answers by the template that it was trained with: its own of a name, ChatML or a file's.
TEST_F(ExportTypes, TheChosenChatTemplateGoesWithTheModel) {
  std::filesystem::create_directories(sandbox_ / "model/additional_chat_templates");
  write_text(sandbox_ / "model/chat_template.jinja", "default");
  write_text(sandbox_ / "model/additional_chat_templates/chatml.jinja", "its own");
  train("run", {});
  EXPECT_EQ(read_text(sandbox_ / "run/model/chat_template.jinja"), "default");
  train("run", {"--resume", "--chat-template", "chatml"});
  EXPECT_EQ(read_text(sandbox_ / "run/model/chat_template.jinja"), "its own");
  write_text(sandbox_ / "mine.jinja", "a file's");
  train("run", {"--resume", "--chat-template", "mine.jinja"});
  EXPECT_EQ(read_text(sandbox_ / "run/model/chat_template.jinja"), "a file's");
  std::filesystem::remove_all(sandbox_ / "model/additional_chat_templates");
  train("other", {"--chat-template", "chatml"});
  EXPECT_TRUE(read_text(sandbox_ / "other/model/chat_template.jinja").find("<|im_start|>") !=
              std::string::npos);
}

TEST_F(ExportTypes, OfTheBf16RecipeLoseNothingThatItComputedWith) {
  const std::string out = train("run", {});
  EXPECT_EQ(out.find("rounded"), std::string::npos) << out;
  train("whole", {"--export-dtype", "fp32"});
  EXPECT_TRUE(open("whole/model").has(DType::kF32)) << "the masters";
  EXPECT_NE(loss({"eval", "--model", "whole/model"}), loss({"eval", "--model", "run/model"}));
}

TEST_F(ExportTypes, StandInTheTomlFileAndAreCheckedThere) {
  write_text(sandbox_ / "run.toml", "export_dtype = \"fp32\"\n");
  train("run", {"--config", "run.toml"});
  EXPECT_TRUE(open("run/model").has(DType::kF32));
  Process refused({"export", "--model", "model", "--out", "o", "--export-dtype", "f32"},
                  {.directory = sandbox_.path()});
  EXPECT_EQ(refused.wait(), 2);
  EXPECT_NE(refused.err().find("did you mean fp32?"), std::string::npos) << refused.err();
}

}  // namespace
}  // namespace strata::cli::test
