// SPDX-License-Identifier: Apache-2.0
// Mistakes that users make: each is refused by name, with the exit code of its kind, in under two
// seconds, and nothing on the disk is different afterwards. The program runs as a process of its
// own.
#include "tests/cli/mistake.h"

namespace strata::cli::test {
namespace {

TEST_F(Mistakes, InOptions) {
  const auto toml = [](const std::string& text) {
    return [=](const Sandbox& sandbox) { write_text(sandbox / "run.toml", text); };
  };
  const Arguments with_toml = train({"--config", "run.toml"});
  expect_refusals({
      {"no command", {}, {}, kUsage, {"Usage: strata COMMAND"}},
      {"misspelt command", {}, {"trian", "--model", "good"}, kUsage, {"did you mean train?"}},
      {"misspelt bench", {}, {"benhc"}, kUsage, {"did you mean bench?"}},
      {"help for a misspelt command", {}, {"help", "trian"}, kUsage, {"did you mean train?"}},
      {"nothing given", {}, {"train"}, kUsage, {"--model is missing", "--out is missing"}},
      {"misspelt option",
       {},
       train({"--hots-memory", "1GiB"}),
       kUsage,
       {"did you mean --host-memory?"}},
      {"another program's option",
       {},
       train({"--learning-rate", "1"}),
       kUsage,
       {"did you mean --lr?"}},
      {"GPUs by their number",
       {},
       train({"--gpus", "2"}),
       kUsage,
       {"--gpus is not an option (--device cuda uses a GPU; strata launch --ranks N"}},
      {"another name of the GPU", {}, train({"--device", "gpu"}), kUsage, {"did you mean cuda?"}},
      {"a share in percent",
       {},
       train({"--data", "good/config.json:70%"}),
       kUsage,
       {"the weight 70% is not a number (give a share such as 0.7)"}},
      {"columns of plain text",
       {},
       train({"--columns", "text=body"}),
       kUsage,
       {"--columns has no effect: plain text and files of tokens have no records"}},
      {"records without anything to learn in a sample",
       [](const Sandbox& sandbox) {
         const std::string prompt(4000, 'a');
         write_text(sandbox / "long.jsonl", R"({"prompt": ")" + prompt +
                                                R"(", "completion": "b"})" + "\n" +
                                                R"({"prompt": "a", "completion": ""})" + "\n");
       },
       train({"--data", "long.jsonl", "--samples", "record"}),
       kUsage,
       {"there is nothing to learn, all 2 records are left out: 1 with an empty completion "
        "(line 2), 1 with nothing to learn in the first 32 tokens (line 1)"}},
      {"several values with spaces",
       {},
       train({"--data", "a.txt", "b.txt"}),
       kUsage,
       {"unexpected argument \"b.txt\" (join several values by commas: --data a.txt,b.txt)"}},
      {"a list given twice",
       {},
       train({"--nvme", "a", "--nvme", "b"}),
       kUsage,
       {"--nvme is given twice (join several values by commas)"}},
      {"values without names",
       {},
       {"export", "run", "out"},
       kUsage,
       {"unexpected argument \"run\" (each value needs the name of its option, such as --resume "
        "run)",
        "--out is missing"}},
      {"a profile by its name",
       {},
       {"plan", "--model", "good", "--machine", "h200-8nvme"},
       kUsage,
       {"h200-8nvme: there is no such file (give the path of a profile; examples/machines/ has "
        "h200-8nvme.toml, laptop-24gb.toml, rtx4090-4nvme.toml, small-2core.toml, and "}},
      {"a dataset of a hub",
       {},
       train({"--data", "owner/dataset"}),
       kUsage,
       {"nothing is downloaded (get a dataset of a hub, and give the file"}},
      {"no run to resume",
       {},
       {"train", "--resume"},
       kUsage,
       {": --resume: no run is named (strata train --resume RUN)"}},
      {"a model to resume",
       {},
       {"train", "--resume", "good"},
       kUsage,
       {"good: it is a model (--model begins with one), not a checkpoint"}},
      {"option of another command", {}, train({"--prompt", "a"}), kUsage, {"--prompt"}},
      {"no value", {}, train({"--lr"}), kUsage, {"--lr"}},
      {"given twice", {}, train({"--lr", "1e-4", "--lr", "2e-4"}), kUsage, {"--lr is given twice"}},
      {"stray word", {}, train({"extra"}), kUsage, {"unexpected argument \"extra\""}},
      {"NaN", {}, train({"--lr", "nan"}), kUsage, {"--lr \"nan\" is not a finite number"}},
      {"infinite", {}, train({"--clip", "inf"}), kUsage, {"--clip \"inf\""}},
      {"negative rate", {}, train({"--lr", "-1e-3"}), kUsage, {"--lr \"-1e-3\" is out of range"}},
      {"absurd rate", {}, train({"--lr", "1e3"}), kUsage, {"--lr \"1e3\" is out of range"}},
      {"no rate",
       {},
       train({"--lr", "0"}),
       kUsage,
       {"--lr \"0\" is out of range", "above 0, at most 1"}},
      {"options without effect",
       toml("lr = 1\n[[group]]\nmatch = \".*\"\nlr_factor = 1000\n"),
       train({"--config", "run.toml", "--schedule", "constant", "--min-lr-ratio", "0.1",
              "--eval-fraction", "0.1"}),
       kUsage,
       {"3 problems", "[[group]] 1: --lr 1 times lr_factor 1000 is 1000, more than 1",
        "--min-lr-ratio has no effect: --schedule constant", "give --eval-every N"}},
      {"one beta", {}, train({"--betas", "0.9"}), kUsage, {"needs two numbers"}},
      {"accumulate 0", {}, train({"--accumulate", "0"}), kUsage, {"--accumulate \"0\""}},
      {"negative budget", {}, train({"--host-memory", "-1GiB"}), kUsage, {"--host-memory"}},
      {"unknown unit",
       {},
       train({"--host-memory", "12parsecs"}),
       kUsage,
       {"not a size (give a size such as 24GiB)"}},
      {"unknown choice", {}, train({"--schedule", "cosin"}), kUsage, {"cosin", "cosine"}},
      {"two lengths", {}, train({"--epochs", "2"}), kUsage, {"--steps and --epochs"}},
      {"nvme without a directory", {}, train({"--offload", "nvme"}), kUsage, {"give --nvme DIR"}},
      {"no such backend", {}, train({"--device", "cuda"}), kUsage, {"cuda", "--device cpu"}},
      {"device budget of the host",
       {},
       train({"--device", "cpu", "--device-memory", "1GiB"}),
       kUsage,
       {"--device-memory has no effect with --device cpu"}},
      {"conflicts together",
       {},
       train({"--lr", "-1", "--acumulate", "3", "--clip", "1", "--optimizer-mode", "in-backward"}),
       kUsage,
       {"3 problems", "--lr \"-1\"", "did you mean --accumulate?", "cannot clip"}},
      {"DeepSpeed file with refused keys",
       [](const Sandbox& sandbox) {
         write_text(sandbox / "ds.json",
                    R"({"bf16": {"enabled": 1}, "train_batch_size": 32, "steps_per_prnt": 1})");
       },
       train({"--deepspeed", "ds.json", "--micro-batch", "5"}),
       kUsage,
       {"What became of ds.json:", "--recipe bf16", "did you mean steps_per_print?",
        "not a multiple of micro-batch 5 (--micro-batch) x 1 rank"}},
      {"pattern that is none",
       {},
       train({"--freeze", "model.("}),
       kUsage,
       {"not a regular expression"}},
      {"pattern that backtracks without end",
       {},
       train({"--freeze", "((.|.)+)+e[0-9]"}),
       kUsage,
       {"freeze: ", "cannot be matched", "match limit"}},
      {"pattern without a match",
       {},
       train({"--freeze", "transformer"}),
       kUsage,
       {"matches no parameter", "model.embed_tokens.weight"}},
      {"nothing left to train", {}, train({"--freeze", ".*"}), kUsage, {"nothing to train"}},
      {"nothing left to train by groups",
       toml("[[group]]\nmatch = \".*\"\nfrozen = true\n"),
       with_toml,
       kUsage,
       {"[[group]]: ", "nothing to train"}},
      {"no such file", {}, train({"--config", "nowhere.toml"}), kUsage, {"nowhere.toml"}},
      {"misspelt key",
       toml("lr = 1e-3\nhots_memory = \"1GiB\"\n"),
       with_toml,
       kUsage,
       {"run.toml:2:1", "did you mean host_memory?"}},
      {"no TOML", toml("lr = 1e-3\nclip = = 3\n"), with_toml, kUsage, {"run.toml:2:8"}},
      {"values of another type",
       toml("lr = \"fast\"\nclip = -1\n"),
       with_toml,
       kUsage,
       {"2 problems", "run.toml:1:1: lr", "run.toml:2:1: clip"}},
      {"heads that do not divide",
       {},
       {"init", "--data", STRATA_TEXT, "--out", "out", "--hidden", "33", "--heads", "4"},
       kUsage,
       {"not a multiple of --heads 4"}},
      {"a model for a machine profile",
       {},
       {"plan", "--model", "good", "--machine", "good/config.json"},
       kUsage,
       {"cannot use the machine profile good/config.json: it is JSON, and a profile is TOML"}},
      {"no machine profile",
       {},
       {"plan", "--model", "good", "--machine", "nowhere.toml"},
       kUsage,
       {"nowhere.toml"}},
  });
}

TEST_F(Mistakes, InDeepspeedFiles) {
  const auto with = [](const std::string& name, const std::string& text,
                       const std::vector<std::string>& says, const Arguments& more = {}) {
    Arguments arguments = train(more);
    arguments.insert(arguments.end(), {"--deepspeed", "ds.json"});
    const auto prepare = [=](const Sandbox& sandbox) { write_text(sandbox / "ds.json", text); };
    return Mistake{name, prepare, arguments, kUsage, says};
  };
  expect_refusals({
      with("no JSON", "{\n  \"gradient_clipping\": 1\n  \"fp16\": {}\n}\n",
           {"ds.json: line 3, column"}),
      with("names without quotes", "{\n  # HJSON\n  gradient_clipping: 1\n}\n",
           {"ds.json: line 3, column", "comments and commas after last members are allowed"}),
      with("a text for a number", R"({"optimizer": {"params": {"lr": "1e-4 or so"}}})",
           {"optimizer.params.lr", "is not a finite number", "--lr: a number, above 0, at most 1"}),
      with("nvme without a path", R"({"zero_optimization": {"offload_param": {"device": "nvme"}}})",
           {"give --nvme DIR); --offload is given by ds.json: zero_optimization.offload_param.d"}),
      with("a drive of another machine",
           R"({"zero_optimization": {"offload_param": {"device": "nvme", "nvme_path": "/gone"}}})",
           {"nvme: /gone"}),
      with("several together",
           R"({"optimizer": {"type": "Lamb"}, "zero_optimization": {"zero_quantized_weights": 1}})",
           {"3 problems", "optimizer.type", "it would change results", "--lrr"}, {"--lrr", "1"}),
      {"no such file", {}, train({"--deepspeed", "no.json"}), kUsage, {"cannot open no.json"}},
  });
}

TEST_F(Mistakes, InData) {
  const auto data = [](const std::string& name, const std::string& text) {
    return [=](const Sandbox& sandbox) { write_text(sandbox / name, text); };
  };
  std::string tokens(2 * 400, '\0');
  tokens[2 * 399] = '\x2c';  // 300 in the last place
  tokens[2 * 399 + 1] = '\x01';
  expect_refusals({
      {"no such file", {}, train({"--data", "nowhere.txt"}), kUsage, {"nowhere.txt"}},
      {"empty",
       data("empty.txt", ""),
       train({"--data", "empty.txt"}),
       kUsage,
       {"empty.txt", "empty"}},
      {"too short",
       data("short.txt", "A ship."),
       train({"--data", "short.txt"}),
       kUsage,
       {"fewer than one sample", "--sequence-length"}},
      {"no text",
       data("noise.txt", "\x8e\xff\xff"),
       train({"--data", "noise.txt"}),
       kUsage,
       {"noise.txt", "not UTF-8"}},
      {"a directory without text",
       [](const Sandbox& sandbox) { std::filesystem::create_directory(sandbox / "none"); },
       train({"--data", "none"}),
       kUsage,
       {"none"}},
      {"a token beyond the vocabulary",
       data("tokens.bin", tokens),
       train({"--data", "tokens.bin"}),
       kUsage,
       {"token 399 has id 300", "300 entries"}},
      {"half a token",
       data("odd.bin", tokens + "x"),
       train({"--data", "odd.bin"}),
       kUsage,
       {"801 bytes"}},
      {"a record without text",
       data("a.jsonl", "{\"text\": 3}\n"),
       train({"--data", "a.jsonl"}),
       kUsage,
       {"a.jsonl:1", "not a string"}},
      {"nothing held out",
       {},
       train({"--eval-every", "1", "--eval-fraction", "0"}),
       kUsage,
       {"nothing is held out"}},
      {"init without data",
       {},
       {"init", "--data", "nowhere.txt", "--out", "out"},
       kUsage,
       {"nowhere.txt"}},
      {"generate with more than the positions",
       {},
       {"generate", "--model", "good", "--prompt", "A", "--sequence-length", "4096"},
       kUsage,
       {"positions up to 2048"}},
      {"generate from nowhere",
       {},
       {"generate", "--model", "nowhere", "--prompt", "A"},
       kUsage,
       {"nowhere"}},
  });
}

TEST_F(Mistakes, InBudgets) {
  expect_refusals({
      {"host budget",
       {},
       train({"--host-memory", "8MiB"}),
       kDoesNotFit,
       {"does not fit", "has 8 MiB", "the least that fits", "MiB"}},
      {"host budget of a plan",
       {},
       {"plan", "--model", "good", "--machine", STRATA_MACHINE, "--host-memory", "8MiB"},
       kDoesNotFit,
       {"does not fit"}},
      {"device budget",
       {},
       train({"--device", "emulated", "--device-memory", "64KiB"}),
       kDoesNotFit,
       {"does not fit", "device"}},
      {"drives that would not help",
       {},
       train({"--host-memory", "10MiB"}),
       kDoesNotFit,
       {"has 10 MiB (raise --host-memory);"}},
      {"a batch beyond every memory",
       {},
       train({"--sequence-length", "2048", "--micro-batch", "1000000"}),
       kDoesNotFit,
       {"does not fit", "or give a smaller batch, such as --micro-batch "}},
  });
}

TEST_F(Mistakes, InScratchDirectories) {
  const auto nvme = [](const std::string& directory) {
    return train({"--offload", "nvme", "--nvme", directory});
  };
  expect_refusals({
      {"no such directory", {}, nvme("nowhere"), kUsage, {"nvme: nowhere"}},
      {"a file", {}, nvme(STRATA_TEXT), kUsage, {"Not a directory"}},
      {"one directory twice", {}, nvme(".,."), kUsage, {"."}},
      {"a file size limit",
       {},
       nvme("."),
       kDoesNotFit,
       {"File too large", "ulimit -f"},
       {.file_size_limit = 64 << 10}},
  });
}

TEST_F(Mistakes, ScratchInMemory) {
  if (!std::filesystem::is_directory("/dev/shm")) GTEST_SKIP() << "no /dev/shm here";
  expect_refusal({"tmpfs", {}, train({"--nvme", "/dev/shm"}), kUsage, {"/dev/shm", "on tmpfs"}});
}

// A file system of 8 MiB, mounted where only the program sees it.
TEST_F(Mistakes, NoSpaceForScratch) {
  const Sandbox drive;
  const std::string make = "cd " + drive.path() +
                           " && mkdir scratch && truncate -s 8M disk && mkfs.ext4 -q disk && "
                           "unshare -m mount -o loop disk scratch";
  if (std::system((make + " 2> " + (drive / "why")).c_str()) != 0) {
    GTEST_SKIP() << "cannot mount a file here: " << read_text(drive / "why");
  }
  make_model(sandbox_, "wide", {.layers = 2, .hidden = 256});
  const std::string mount =
      "mount -o loop " + (drive / "disk") + " " + (drive / "scratch") + " && exec \"$@\"";
  Arguments arguments = train({"--nvme", drive / "scratch", "--offload", "nvme"}, "wide");
  arguments.insert(arguments.end(), {"--host-memory", "64MiB"});
  expect_refusal({"a small drive",
                  {},
                  arguments,
                  kDoesNotFit,
                  {"does not fit", "NVMe space: needs at least "},
                  {.wrap = {"unshare", "-m", "sh", "-c", mount, "sh"}}});
}

TEST_F(Mistakes, InPlacesToWrite) {
  make_run();
  expect_refusals({
      {"a file", {}, train_into(STRATA_TEXT), kUsage, {"it is not a directory"}},
      {"below a file", {}, train_into(STRATA_TEXT "/run"), kUsage, {"cannot create run directory"}},
      {"no run", {}, train_into("good"), kUsage, {"does not belong to a run"}},
      {"a run", {}, train_into("run"), kUsage, {"already has a run", "--resume", "--force"}},
      {"a model in the way",
       {},
       {"init", "--data", STRATA_TEXT, "--out", "good"},
       kUsage,
       {"exists already"}},
      {"a folder in a model to be replaced",
       [](const Sandbox& sandbox) {
         copy_good_model(sandbox);
         std::filesystem::create_directory(sandbox / "bad/notes");
       },
       {"init", "--data", STRATA_TEXT, "--out", "bad", "--force"},
       kUsage,
       {"replacing it would delete the folder notes in it"}},
      {"export over the model",
       {},
       {"export", "--model", "good", "--resume", "run/checkpoints/step-000002", "--out", "good"},
       kUsage,
       {"exists already"}},
  });
}

TEST_F(Mistakes, WithoutPermission) {
  Process trial({"--version"}, {.directory = sandbox_.path(), .obeys_permissions = true});
  if (trial.wait() != 0) GTEST_SKIP() << "root cannot be made to obey permissions here";
  std::filesystem::create_directory(sandbox_ / "closed");
  std::filesystem::permissions(sandbox_ / "closed", std::filesystem::perms(0555));
  const auto unreadable = [](const Sandbox& sandbox) {
    copy_good_model(sandbox);
    std::filesystem::permissions(sandbox / "bad/model.safetensors", std::filesystem::perms(0));
  };
  const auto dark = [](const Sandbox& sandbox) {
    std::filesystem::create_directory(sandbox / "dark");
    std::ofstream(sandbox / "dark/train.jsonl") << "{\"text\": \"a\"}\n";
    std::filesystem::permissions(sandbox / "dark", std::filesystem::perms(0));
  };
  const ProcessOptions obedient = {.obeys_permissions = true};
  expect_refusals({
      {"data directory",
       dark,
       {"eval", "--model", "good", "--data", "dark", "--sequence-length", "32"},
       kUsage,
       {"open data: dark", "chmod"},
       obedient},
      {"a run to report",
       {},
       {"report", "dark"},
       kUsage,
       {"dark/run.json: Permission denied"},
       obedient},
      {"scratch",
       {},
       train({"--offload", "nvme", "--nvme", "closed"}),
       kUsage,
       {"closed", "Permission denied"},
       obedient},
      {"run directory",
       {},
       train_into("closed/run"),
       kUsage,
       {"closed", "Permission denied"},
       obedient},
      {"new model",
       {},
       {"init", "--data", STRATA_TEXT, "--out", "closed/model"},
       kUsage,
       {"closed", "Permission denied"},
       obedient},
      {"weights",
       unreadable,
       train({}, "bad"),
       kUsage,
       {"model.safetensors", "Permission denied"},
       obedient},
  });
}

}  // namespace
}  // namespace strata::cli::test
