// SPDX-License-Identifier: Apache-2.0
// Files of another format, of another program, or of a part of a download are told as what they
// are, with what to do; so are paths that a shell would have replaced, and groups that say nothing.
#include "engine/config/json.h"
#include "tests/cli/mistake.h"

namespace strata::cli::test {
namespace {

using config::Json;

std::function<void(const Sandbox&)> written(const std::string& name, const std::string& text) {
  return [=](const Sandbox& sandbox) { write_text(sandbox / name, text); };
}

// A copy of the good model with a member of one of its JSON files set.
std::function<void(const Sandbox&)> with_member(const std::string& file, const std::string& name,
                                                const Json& value) {
  return [=](const Sandbox& sandbox) {
    copy_good_model(sandbox);
    const std::string path = sandbox / ("bad/" + file);
    Json json = Json::read_file(path);
    json.set(name, value);
    write_text(path, json.dump());
  };
}

std::function<void(const Sandbox&)> with_weights_named(const std::string& name) {
  return [=](const Sandbox& sandbox) {
    copy_good_model(sandbox);
    std::filesystem::rename(sandbox / "bad/model.safetensors", sandbox / ("bad/" + name));
  };
}

TEST_F(Mistakes, InFilesOfTomlThatAreNone) {
  const auto toml = [](const std::string& name, const std::string& text,
                       const std::vector<std::string>& says) {
    return Mistake{name, written("run.toml", text), train({"--config", "run.toml"}), kUsage, says};
  };
  expect_refusals({
      toml("JSON", "{\"lr\": 1e-3}\n", {"run.toml:1:1", "looks like JSON", "--deepspeed"}),
      toml("YAML", "lr: 1e-3\n", {"run.toml:1:3", "write lines like lr = 1e-4"}),
      toml("a size without quotes", "host_memory = 24GiB\n",
           {"run.toml:1:", "host_memory = \"24GiB\": put sizes, paths and words in quotes"}),
      toml("a path without quotes", "nvme = /mnt/a\n", {"run.toml:1:8", "in quotes"}),
      toml("a pattern in double quotes", "freeze = \"model\\.norm.*\"\n",
           {"unknown escape sequence", "put patterns in single quotes"}),
      toml("a table of options", "[train]\nlr = 1e-3\n",
           {"run.toml:2:1: lr is in the table train", "[[group]] is the only table"}),
      {"a directory", {}, train({"--config", "good"}), kUsage, {"good", "directory"}},
  });
}

// run.json could not name it for a resume.
TEST_F(Mistakes, InPathsThatAreNotUtf8) {
  expect_refusal({"a model", {}, train({}, "mod\xe9l"), kUsage, {"not UTF-8", "rename it"}});
}

TEST_F(Mistakes, InPlansOfTooManyOperations) {
  expect_refusal(
      {"a plan",
       {},
       {"plan", "--model", "good", "--machine", STRATA_MACHINE, "--accumulate", "1000000"},
       kUsage,
       {"--accumulate 1000000: a step would be", "(give a larger --micro-batch"}});
}

TEST_F(Mistakes, InGroups) {
  const auto group = [](const std::string& name, const std::string& text,
                        const std::vector<std::string>& says) {
    return Mistake{name, written("run.toml", "[[group]]\n" + text + "\n"),
                   train({"--config", "run.toml"}), kUsage, says};
  };
  expect_refusals({
      group("a glob", "match = \"*embed*\"\nlr_factor = 0.5",
            {"not a regular expression", "in \".*embed.*\" the ."}),
      group("a part of a name", "match = \"embed_tokens\"\nlr_factor = 0.5",
            {"it must match a whole name, such as"}),
      group("the option's name", "match = \".*\"\nlr = 1e-3",
            {"run.toml:3:1: lr is not a key", "match, lr_factor, weight_decay and frozen are"}),
      group("a negative factor", "match = \".*\"\nlr_factor = -1", {"a number, 0 to 1000"}),
  });
}

TEST_F(Mistakes, WithPathsThatAShellWouldReplace) {
  const Arguments tilde = train_into("~/run");
  expect_refusals({
      {"a run below ~", {}, tilde, kUsage, {"--out \"~/run\" begins with ~", "the whole path"}},
      {"a model below $HOME", {}, train({}, "$HOME/llama"), kUsage, {"--model", "begins with $"}},
      {"a drive below ~", {}, train({"--nvme", ".,~/b"}), kUsage, {"--nvme", "begins with ~"}},
      {"in a file",
       written("run.toml", "machine = \"~/machine.toml\"\n"),
       {"plan", "--model", "good", "--config", "run.toml"},
       kUsage,
       {"run.toml:1:1: machine", "begins with ~"}},
  });
  Process process(train({}, ""), {.directory = sandbox_.path()});
  EXPECT_EQ(process.wait(), kUsage);
  EXPECT_EQ(process.err().find("--model is missing"), std::string::npos) << process.err();
}

TEST_F(Mistakes, InDownloadsOfModels) {
  const Arguments bad = train({}, "bad");
  const auto link = [](const std::string& name) {
    return [=](const Sandbox& sandbox) {
      copy_good_model(sandbox);
      std::filesystem::remove(sandbox / ("bad/" + name));
      std::filesystem::create_symlink("../../blobs/1a2b", sandbox / ("bad/" + name));
    };
  };
  const std::string dangling = " is a link to ../../blobs/1a2b, which is not there";
  expect_refusals({
      {"shards without their index",
       with_weights_named("model-00001-of-00002.safetensors"),
       bad,
       kUsage,
       {"have no model.safetensors.index.json (fetch that too"}},
      {"a part of a file",
       with_weights_named("model.safetensors.incomplete"),
       bad,
       kUsage,
       {"is incomplete (fetch the model again)"}},
      {"a link to weights", link("model.safetensors"), bad, kUsage, {dangling, "fetch the file"}},
      {"a link to a config", link("config.json"), bad, kUsage, {"config.json" + dangling}},
      {"a link to a tokenizer", link("tokenizer.json"), bad, kUsage, {"tokenizer.json" + dangling}},
      {"the file for the directory",
       {},
       train({}, "good/config.json"),
       kUsage,
       {"give the one that it is in"}},
      {"a model without its head",
       with_member("config.json", "architectures", Json::Array{Json("LlamaModel")}),
       bad,
       kUsage,
       {"of model_type \"llama\" only LlamaForCausalLM is"}},
      {"a config of something else",
       [](const Sandbox& sandbox) {
         copy_good_model(sandbox);
         write_text(sandbox / "bad/config.json", "{\"hidden_size\": 8}");
       },
       bad,
       kUsage,
       {"architectures: missing, and so is model_type"}},
      {"FP8 that was converted",
       with_member("config.json", "quantization_config",
                   Json::parse(R"({"quant_method": "fp8", "weight_block_size": [128, 128]})", "")),
       bad,
       kUsage,
       {"says that weights are FP8, and none is", "take quantization_config out"}},
      {"types of other layers",
       with_member("config.json", "layer_types", Json::Array{Json("full_attention")}),
       bad,
       kUsage,
       {"layer_types: has 1 name for 2 layers"}},
  });
}

TEST_F(Mistakes, InTokenizersAndDataOfOtherKinds) {
  const auto tokenizer = [](const std::string& from, const std::string& to) {
    return [=](const Sandbox& sandbox) {
      copy_good_model(sandbox);
      std::string text = read_text(sandbox / "bad/tokenizer.json");
      const size_t at = text.find(from);
      ASSERT_NE(at, std::string::npos) << from;
      write_text(sandbox / "bad/tokenizer.json", text.replace(at, from.size(), to));
    };
  };
  const Arguments bad = train({}, "bad");
  expect_refusals({
      {"another kind",
       tokenizer("\"BPE\"", "\"WordLevel\""),
       bad,
       kUsage,
       {"bad/tokenizer.json: model.type", "'WordLevel' is not supported", "as a file of tokens"}},
      {"a merge of nothing",
       tokenizer("\"merges\": [", "\"merges\": [\"qq zz\","),
       bad,
       kUsage,
       {"bad/tokenizer.json: ", "merge 0", "fetch the file again"}},
      {"a table",
       written("a.csv", "id,text\n1,A ship.\n"),
       train({"--data", "a.csv"}),
       kUsage,
       {"a.csv", "CSV and Parquet are not supported", "examples/to_jsonl.py"}},
      {"a packed text",
       written("a.txt.gz", "\x1f\x8b\x08"),
       train({"--data", "a.txt.gz"}),
       kUsage,
       {"compressed files are not supported", "unpack it first"}},
      {"weights as data",
       {},
       train({"--data", "good/model.safetensors"}),
       kUsage,
       {"it holds weights, not data (give the directory that it is in as --model)"}},
      {"a document",
       written("book.pdf", "%PDF-1.7"),
       train({"--data", "book.pdf"}),
       kUsage,
       {"documents are not supported (extract their text into a .txt file)"}},
      {"text under the name of records",
       written("text.jsonl", "Once upon a time\n"),
       train({"--data", "text.jsonl"}),
       kUsage,
       {"text.jsonl: line 1, column ", "(write one JSON object in each line",
        "plain text is named .txt)"}},
  });
}

}  // namespace
}  // namespace strata::cli::test
