// SPDX-License-Identifier: Apache-2.0
// What is wrong with a model directory is said by name before anything runs.
#include <cstring>

#include "tests/cli/mistake.h"

namespace strata::cli::test {
namespace {

void replace_once(std::string& text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
}

// A copy of the good model with one text in one file replaced.
std::function<void(const Sandbox&)> edited(const std::string& file, const std::string& from,
                                           const std::string& to) {
  return [=](const Sandbox& sandbox) {
    copy_good_model(sandbox);
    std::string text = read_text(sandbox / ("bad/" + file));
    replace_once(text, from, to);
    write_text(sandbox / ("bad/" + file), text);
  };
}

std::function<void(const Sandbox&)> with_file(const std::string& file, const std::string& text) {
  return [=](const Sandbox& sandbox) {
    copy_good_model(sandbox);
    write_text(sandbox / ("bad/" + file), text);
  };
}

std::function<void(const Sandbox&)> without_file(const std::string& file) {
  return [=](const Sandbox& sandbox) {
    copy_good_model(sandbox);
    std::filesystem::remove(sandbox / ("bad/" + file));
  };
}

// The header of the weights edited; its length stays true.
std::function<void(const Sandbox&)> edited_header(const std::string& from, const std::string& to) {
  return [=](const Sandbox& sandbox) {
    copy_good_model(sandbox);
    const std::string path = sandbox / "bad/model.safetensors";
    const std::string bytes = read_text(path);
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    std::string header = bytes.substr(sizeof length, length);
    replace_once(header, from, to);
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const uint64_t size = header.size();
    write_text(path, std::string(reinterpret_cast<const char*>(&size), sizeof size) + header +
                         bytes.substr(sizeof length + length));
  };
}

std::function<void(const Sandbox&)> with_weights_cut_to(uint64_t bytes) {
  return [=](const Sandbox& sandbox) {
    copy_good_model(sandbox);
    std::filesystem::resize_file(sandbox / "bad/model.safetensors", bytes);
  };
}

constexpr const char* kLfsPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 79680\n";

void split_without_second_shard(const Sandbox& sandbox) {
  copy_good_model(sandbox);
  std::filesystem::rename(sandbox / "bad/model.safetensors",
                          sandbox / "bad/model-00001-of-00002.safetensors");
  write_text(sandbox / "bad/model.safetensors.index.json",
             R"({"weight_map": {"model.embed_tokens.weight": "model-00001-of-00002.safetensors",
                                "lm_head.weight": "model-00002-of-00002.safetensors"}})");
}

void index_out_of_the_directory(const Sandbox& sandbox) {
  copy_good_model(sandbox);
  std::filesystem::remove(sandbox / "bad/model.safetensors");
  write_text(sandbox / "bad/model.safetensors.index.json",
             R"({"weight_map": {"lm_head.weight": "../good/model.safetensors"}})");
}

void only_pickled_weights(const Sandbox& sandbox) {
  copy_good_model(sandbox);
  std::filesystem::rename(sandbox / "bad/model.safetensors", sandbox / "bad/pytorch_model.bin");
}

TEST_F(Mistakes, InModelDirectories) {
  const Arguments bad = train({}, "bad");
  const std::string huge_length("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
  expect_refusals({
      {"no such directory", {}, train({}, "nowhere"), kUsage, {"nowhere", "no such directory"}},
      {"a file", {}, train({}, STRATA_TEXT), kUsage, {"it is not a directory"}},
      {"no config", without_file("config.json"), bad, kUsage, {"no config.json"}},
      {"a file that the export could not have",
       [](const Sandbox& sandbox) {
         copy_good_model(sandbox);
         std::filesystem::create_symlink("/etc/hostname", sandbox / "bad/README.md");
       },
       bad,
       kUsage,
       {"README.md", "link out of the directory", "copy the file"}},
      {"broken config",
       with_file("config.json", "{"),
       bad,
       kUsage,
       {"config.json: line 1, column 2", "(fetch the file again)"}},
      {"negative size",
       edited("config.json", "\"hidden_size\": 32", "\"hidden_size\": -32"),
       bad,
       kUsage,
       {"hidden_size", "-32"}},
      {"unknown architecture",
       edited("config.json", "LlamaForCausalLM", "Mamba2ForCausalLM"),
       bad,
       kUsage,
       {"Mamba2ForCausalLM", "LlamaForCausalLM"}},
      {"quantized",
       edited("config.json", "{", "{\"quantization_config\": {\"bits\": 4},"),
       bad,
       kUsage,
       {"quantization_config", "convert"}},
      {"cut in the weights",
       with_weights_cut_to(40000),
       bad,
       kUsage,
       {"model.safetensors", "fetch the file again"}},
      {"cut in the header", with_weights_cut_to(100), bad, kUsage, {"model.safetensors"}},
      {"cut before the header", with_weights_cut_to(4), bad, kUsage, {"truncated", "4 bytes"}},
      {"a header of 2^63 bytes",
       with_file("model.safetensors", huge_length),
       bad,
       kUsage,
       {"9223372036854775807 bytes", "the format allows"}},
      {"offsets beyond the file",
       edited_header("[0, 19200]", "[0, 9000000000019200]"),
       bad,
       kUsage,
       {"model.embed_tokens.weight", "data_offsets"}},
      {"overlapping tensors",
       edited_header("[19200, 38400]", "[19198, 38398]"),
       bad,
       kUsage,
       {"lm_head.weight"}},
      {"missing tensor",
       edited_header("layers.1.mlp.gate_proj", "layers.1.mlp.gate"),
       bad,
       kUsage,
       {"\"model.layers.1.mlp.gate_proj.weight\" [96, 32] is missing"}},
      {"wrong shape",
       edited_header("[96, 32]", "[32, 96]"),
       bad,
       kUsage,
       {"has shape [32, 96], not [96, 32]"}},
      {"vocabulary of another size",
       edited("config.json", "\"vocab_size\": 300", "\"vocab_size\": 280"),
       bad,
       kUsage,
       {"has shape [300, 32], not [280, 32]"}},
      {"pointer for weights",
       with_file("model.safetensors", kLfsPointer),
       bad,
       kUsage,
       {"Git LFS pointer", "git lfs pull"}},
      {"pointer for the tokenizer",
       with_file("tokenizer.json", kLfsPointer),
       bad,
       kUsage,
       {"tokenizer.json", "Git LFS pointer", "git lfs pull"}},
      {"missing shard",
       split_without_second_shard,
       bad,
       kUsage,
       {"missing", "model-00002-of-00002.safetensors"}},
      {"index out of the directory",
       index_out_of_the_directory,
       bad,
       kUsage,
       {"../good/model.safetensors", "not a plain file name"}},
      {"no weights", without_file("model.safetensors"), bad, kUsage, {"neither model.safetensors"}},
      {"pickled weights", only_pickled_weights, bad, kUsage, {"convert it to safetensors"}},
      {"no tokenizer", without_file("tokenizer.json"), bad, kUsage, {"no tokenizer.json"}},
      {"a cut tokenizer",
       with_file("tokenizer.json", "{\"model\": {"),
       bad,
       kUsage,
       {"tokenizer.json: line 1, column", "(fetch the file again)"}},
      {"empty tokenizer", with_file("tokenizer.json", "{}"), bad, kUsage, {"tokenizer.json"}},
      {"longer than the positions",
       {},
       train({"--sequence-length", "4096"}),
       kUsage,
       {"sequence-length: 4096", "positions up to 2048"}},
  });
}

std::function<void(const Sandbox&)> folder_with(const std::vector<std::string>& names) {
  return [=](const Sandbox& sandbox) {
    std::filesystem::remove_all(sandbox / "bad");
    std::filesystem::create_directory(sandbox / "bad");
    for (const std::string& name : names) write_text(sandbox / ("bad/" + name), "{}");
  };
}

TEST_F(Mistakes, WithWhatIsNoModelDirectory) {
  const Arguments bad = train({}, "bad");
  const std::string fetch =
      "fetch it with \"hf download meta-llama/Llama-3.2-1B --local-dir "
      "Llama-3.2-1B\", and give --model Llama-3.2-1B)";
  expect_refusals({
      {"name on the hub",
       {},
       train({}, "meta-llama/Llama-3.2-1B"),
       kUsage,
       {"nothing is downloaded", fetch}},
      {"name on the hub to plan",
       {},
       {"plan", "--model", "meta-llama/Llama-3.2-1B"},
       kUsage,
       {"nothing is downloaded", fetch}},
      {"name on the hub to measure for",
       {},
       {"bench", "io", "--nvme", ".", "--tokens", "4096", "--for", "meta-llama/Llama-3.2-1B"},
       kUsage,
       {"nothing is downloaded", "--local-dir Llama-3.2-1B\", and give --for Llama-3.2-1B)"}},
      {"address on the hub",
       {},
       train({}, "https://huggingface.co/meta-llama/Llama-3.2-1B/tree/main"),
       kUsage,
       {"it is an address, and nothing is downloaded", fetch}},
      {"address without its scheme",
       {},
       train({}, "huggingface.co/meta-llama/Llama-3.2-1B"),
       kUsage,
       {fetch}},
      {"other address",
       {},
       train({}, "s3://bucket/models/llama"),
       kUsage,
       {"nothing is downloaded (fetch the model, and give the directory that it is in)"}},
      {"folder of one that is not there",
       {},
       train({}, "good/none"),
       kUsage,
       {"good/none: there is no such directory (give a Hugging Face model directory)\n"}},
      {"file of weights",
       {},
       train({}, "good/model.safetensors"),
       kUsage,
       {"it is not a directory (give the one that it is in"}},
      {"GGUF file",
       [](const Sandbox& sandbox) { write_text(sandbox / "llama-q4.gguf", "GGUF"); },
       train({}, "llama-q4.gguf"),
       kUsage,
       {"GGUF files are not supported (give the Hugging Face directory"}},
      {"folder of GGUF files",
       folder_with({"llama-q4.gguf", "README.md"}),
       bad,
       kUsage,
       {"GGUF files are not supported"}},
      {"config.json with GGUF files",
       [](const Sandbox& sandbox) {
         copy_good_model(sandbox);
         std::filesystem::rename(sandbox / "bad/model.safetensors", sandbox / "bad/llama.gguf");
       },
       bad,
       kUsage,
       {"GGUF files are not supported"}},
      {"adapter",
       folder_with({"adapter_config.json", "adapter_model.safetensors"}),
       bad,
       kUsage,
       {"PEFT adapters are not supported", "merge_and_unload()"}},
      {"adapter to plan",
       folder_with({"adapter_config.json", "adapter_model.safetensors"}),
       {"plan", "--model", "bad"},
       kUsage,
       {"PEFT adapters are not supported"}},
      {"adapter beside its model's config.json",
       [](const Sandbox& sandbox) {
         copy_good_model(sandbox);
         std::filesystem::rename(sandbox / "bad/model.safetensors",
                                 sandbox / "bad/adapter_model.safetensors");
         write_text(sandbox / "bad/adapter_config.json", "{}");
       },
       bad,
       kUsage,
       {"PEFT adapters are not supported"}},
      {"publisher's own format",
       folder_with({"params.json", "consolidated.00.pth"}),
       bad,
       kUsage,
       {"in its publisher's own format"}},
      {"folder of the hub's cache",
       [](const Sandbox& sandbox) {
         std::filesystem::remove_all(sandbox / "bad");
         std::filesystem::create_directories(sandbox / "bad/snapshots/1a2b");
       },
       bad,
       kUsage,
       {"give --model bad/snapshots/REVISION"}},
  });
}

TEST_F(Mistakes, WithARunForItsModel) {
  make_run();
  const Arguments generate = {"generate", "--max-new-tokens", "2", "--model"};
  const auto from = [&](const std::string& path) {
    Arguments all = generate;
    all.push_back(path);
    return all;
  };
  expect_refusals({
      {"run", {}, from("run"), kUsage, {"directory of a run (give its model: --model run/model)"}},
      {"run, with a slash", {}, from("run/"), kUsage, {"--model run/model)"}},
      {"checkpoint",
       {},
       from("run/checkpoints/step-000002"),
       kUsage,
       {"it is a checkpoint", "--resume run/checkpoints/step-000002)"}},
      {"run that was stopped",
       [](const Sandbox& sandbox) { std::filesystem::remove_all(sandbox / "run/model"); },
       from("run"),
       kUsage,
       {"has not written its model yet"}},
  });
}

TEST_F(Mistakes, ATokenizerOfAnotherModel) {
  make_model(sandbox_, "larger", {.vocabulary = 400});
  expect_refusal({"tokenizer of another model",
                  [](const Sandbox& sandbox) {
                    copy_good_model(sandbox);
                    std::filesystem::copy_file(sandbox / "larger/tokenizer.json",
                                               sandbox / "bad/tokenizer.json",
                                               std::filesystem::copy_options::overwrite_existing);
                  },
                  train({}, "bad"),
                  kUsage,
                  {"another model's tokenizer", "400 tokens", "only 300"}});
}

}  // namespace
}  // namespace strata::cli::test
