// SPDX-License-Identifier: Apache-2.0
// The option table: names, defaults and choices hold together, names from elsewhere lead to ours,
// and the help says what the table does.
#include "engine/config/option_table.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/option_values.h"
#include "engine/config/options.h"
#include "tests/config/train_options.h"

namespace strata::config {
namespace {

TEST(OptionTable, NamesAreUniqueAndDefaultsWithinTheirRange) {
  const auto rows = option_table();
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(find_option(rows[i].name), &rows[i]) << rows[i].name;
    EXPECT_NE(rows[i].commands, 0u) << rows[i].name;
    EXPECT_FALSE(rows[i].help.empty()) << rows[i].name;
    Options options;
    const std::string standard = value_text(rows[i], options);
    if (!rows[i].unset_note.empty() || standard.empty()) continue;
    EXPECT_EQ(assign(rows[i], {standard}, options), "") << rows[i].name;
  }
}

TEST(OptionTable, ChoicesCoverTheirEnumerators) {
  for (const OptionRow& row : option_table()) {
    for (const std::string_view choice : row.choices) {
      EXPECT_NE(choice, "") << row.name;
      Options options;
      ASSERT_EQ(assign(row, {std::string(choice)}, options), "");
      EXPECT_EQ(value_text(row, options), choice);
    }
  }
  Options options;
  assign(*find_option("io"), {"threads"}, options);
  EXPECT_EQ(options.io, IoBackend::kThreads);
  assign(*find_option("collectives"), {"mpi"}, options);
  EXPECT_EQ(options.collectives, Collectives::kMpi);
  assign(*find_option("collectives"), {"gloo"}, options);  // as older files and run records say it
  EXPECT_EQ(options.collectives, Collectives::kTcp);
  assign(*find_option("device"), {"cuda"}, options);
  EXPECT_EQ(options.device, Device::kCuda);
  assign(*find_option("offload"), {"nvme"}, options);
  EXPECT_EQ(options.offload, Offload::kNvme);
}

TEST(OptionTable, ANumberedDeviceMayHaveANumber) {
  const OptionRow& row = *find_option("device");
  Options options;
  EXPECT_EQ(assign(row, {"cuda:12"}, options), "");
  EXPECT_EQ(options.device, Device::kCuda);
  EXPECT_EQ(options.device_index, 12);
  EXPECT_EQ(value_text(row, options), "cuda:12");
  Options copied;
  copy_value(row, options, copied);
  EXPECT_EQ(value_text(row, copied), "cuda:12");
  EXPECT_EQ(assign(row, {"cuda"}, options), "");
  EXPECT_EQ(options.device_index, -1);
  for (const char* text :
       {"cpu:0", "auto:0", "emulated:1", "cuda:", "cuda:-1", "cuda:x", "gpu:0"}) {
    EXPECT_NE(assign(row, {text}, options), "") << text;
  }
  EXPECT_EQ(value_text(row, options), "cuda");
}

TEST(OptionTable, NearestIsNearAndOtherwiseNothing) {
  EXPECT_EQ(nearest_option("sequence-lenght", Command::kTrain), "sequence-length");
  EXPECT_EQ(nearest_option("host_memroy", Command::kTrain), "host-memory");
  EXPECT_EQ(nearest_option("temp", Command::kGenerate), "temperature");
  EXPECT_EQ(nearest_option("topk", Command::kGenerate), "top-k");
  EXPECT_EQ(nearest_option("seq", Command::kTrain), "sequence-length");
  EXPECT_EQ(nearest_option("warmu", Command::kTrain), "") << "two begin with it";
  EXPECT_EQ(nearest_option("lrr", Command::kTrain), "lr") << "and not lr-scaling";
  EXPECT_EQ(nearest_option("hope", Command::kTrain), "") << "half of help";
  EXPECT_EQ(nearest_option("zzzzzz", Command::kTrain), "");
  EXPECT_EQ(nearest_option(std::string(100000, 'x'), Command::kTrain), "");
}

// What the help says of one option, on one line: from its flag to the next flag or heading.
std::string help_of_option(Command command, const OptionRow& row) {
  const std::string text = help_text(command);
  const size_t start = text.find("  --" + std::string(row.name) + " ");
  if (start == std::string::npos) return "";
  const size_t end = std::min(text.find("\n  --", start), text.find("\n\n", start));
  std::string line;
  for (const char letter : text.substr(start, end - start)) {
    const bool space = letter == ' ' || letter == '\n';
    if (!space || (!line.empty() && line.back() != ' ')) line += space ? ' ' : letter;
  }
  return line;
}

bool is_number(const OptionRow& row) {
  return row.type == OptionType::kInt || row.type == OptionType::kFloat ||
         row.type == OptionType::kSize || row.type == OptionType::kPair ||
         row.type == OptionType::kRates || row.type == OptionType::kInts;
}

TEST(OptionTable, NamesFromElsewhereLeadToTheOnesHere) {
  const std::pair<const char*, const char*> names[] = {
      {"--max_seq_length", "--sequence-length"},
      {"--context-length", "--sequence-length"},
      {"--seq-length", "--sequence-length"},
      {"--valid-data", "--eval-data"},
      {"--vram", "--device-memory"},
      {"--warmup", "--warmup-steps"},
      {"--offload_optimizer", "--offload"},
      {"--stage", "--zero-stage"},
      {"--nvme-dir", "--nvme"},
      {"--deepspeed-config", "--deepspeed"},
      {"--deepspeed_config_file", "--deepspeed"},
      {"--per_device_train_batch_size", "--micro-batch"},
      {"--offload_optimizer_device", "--offload"},
      {"--offload_param_nvme_path", "--nvme"},
      {"--cutoff_len", "--sequence-length"},
      {"--val_set_size", "--eval-fraction"},
      {"--template", "--chat-template"},
      {"--adam_beta1", "--betas"},
      {"--early_stopping_patience", "--patience"},
      {"--accumulate_grad_batches", "--accumulate"},
      {"--ds_config", "--deepspeed"},
      {"--fsdp", "--zero-stage"},
      {"--wd", "--weight-decay"},
      {"--save-dir", "--out"},
      {"--load", "--resume"},
      {"--dataset_name", "--data"},
      {"--bs", "--micro-batch"},
      {"--ctx", "--sequence-length"},
      {"--name", "--out"},
      {"--ga", "--accumulate"},
      {"--test-data", "--eval-data"},
  };
  for (const auto& [elsewhere, here] : names) {
    EXPECT_HAS(train_error({elsewhere}), fmt::format("(did you mean {}?)", here));
  }
  // What is not here, or has several options.
  const std::pair<const char*, const char*> advice[] = {
      {"--lora_rank",
       "is not an option (leave it out: there is no LoRA, all parameters are trained"},
      {"--load-in-4bit", "is not an option (leave it out: weights are not quantized"},
      {"--logging_steps", "is not an option (leave it out: each step is shown"},
      {"--bf16", "is not an option (use --recipe bf16)"},
      {"--local_rank", "is not an option (leave it out: strata launch, torchrun, srun"},
      {"--num-gpus", "is not an option (--device cuda uses a GPU"},
      {"--num_workers", "is not an option (leave it out: data is read ahead"},
      {"--trust_remote_code", "is not an option: no code of a model is run (leave it out)"},
      {"--torch-compile-mode", "is not an option: it changes speed, not results (leave it out)"},
      {"--push_to_hub", "is not an option: nothing is fetched or sent"},
      {"--neftune_noise_alpha", "is not supported (take it out)"},
      {"--global-batch-size", "is not an option (give --micro-batch and --accumulate"},
      {"--tokenizer_name", "is not an option (leave it out: the tokenizer is that of the model"},
  };
  for (const auto& [elsewhere, what] : advice) EXPECT_HAS(train_error({elsewhere}), what);
  EXPECT_EQ(advice_for_name("explora"), "");
  // Only where the command takes it.
  EXPECT_NE(nearest_option("warmup", Command::kGenerate), "warmup-steps");
}

TEST(Help, ShowsRangeUnitAndChoicesOfEveryOption) {
  for (const OptionRow& row : option_table()) {
    for (int index = 0; index < kCommandCount; ++index) {
      const Command command = static_cast<Command>(index);
      if (!takes(row, command) || row.type == OptionType::kSwitch) continue;
      if (row.type == OptionType::kRates) continue;  // has units of its own
      const std::string text = help_of_option(command, row);
      const OptionRange& range = row.range;
      if (is_number(row)) {
        EXPECT_HAS(text, fmt::format("{}", range.low));
      }
      if (range.high <= 1e5 && row.type != OptionType::kSizes) {  // its bounds have units
        EXPECT_HAS(text, fmt::format("{}", range.high));
      }
      if (!row.unit.empty()) {
        const size_t ending = row.unit.ends_with("ches") ? 2 : 1;
        EXPECT_HAS(text, row.unit.substr(0, row.unit.size() - ending));
      }
      for (const auto choice : row_for(row, command).choices) EXPECT_HAS(text, choice);
    }
  }
  const auto said = [](const char* name) {
    return help_of_option(Command::kTrain, *find_option(name));
  };
  EXPECT_HAS(said("eval-every"), "(0 or more steps; default: never)");
  EXPECT_HAS(said("sequence-length"), "(at least 1 token; default 512)");
  EXPECT_HAS(said("prefetch-depth"), "(1 to 1024 half blocks; default: the planner chooses)");
  EXPECT_HAS(said("betas"), "(each 0 or more, below 1; default 0.9,0.999)");
  EXPECT_HAS(said("eps"), "(above 0, at most 1; default 1e-08)");
  EXPECT_HAS(said("host-memory"), "(at least 1 byte, such as 24GiB; default: ");
  EXPECT_HAS(said("nvme-rate"), "(each at least 64 KiB a second; default: no limit)");
  EXPECT_HAS(said("recipe"), "--recipe fp32|bf16|fp16 ");
}

TEST(Help, MainOptionsComeFirstAndAreNotListedAgain) {
  for (int index = 0; index < kCommandCount; ++index) {
    const Command command = static_cast<Command>(index);
    if (command == Command::kModels) continue;  // has two options
    const std::string text = help_text(command);
    const size_t begin = text.find("\nMain options\n");
    ASSERT_NE(begin, std::string::npos) << name_of(command);
    const std::string first = text.substr(begin, text.find("\n\n", begin) - begin);
    size_t count = 0;
    for (size_t at = first.find("\n  --"); at != first.npos; at = first.find("\n  --", at + 1)) {
      ++count;
      const std::string flag = first.substr(at, first.find(' ', at + 5) - at + 1);
      EXPECT_EQ(text.find(flag), text.rfind(flag)) << flag;
    }
    EXPECT_GE(count, 1u);
    EXPECT_LE(count, 10u);
  }
}

TEST(Help, EveryOptionHasOnePlainSentence) {
  for (int index = 0; index < kCommandCount; ++index) {
    for (const OptionRow& row : option_table()) {
      const std::string_view help = row_for(row, static_cast<Command>(index)).help;
      EXPECT_TRUE(help.ends_with('.')) << help;
      EXPECT_EQ(help.find(". "), help.npos) << help;
      EXPECT_TRUE(help.front() >= 'A' && help.front() <= 'Z') << help;
      EXPECT_LE(help.size(), 160u) << help;
    }
  }
}

TEST(Help, SpeaksOfItsOwnCommandAlone) {
  const auto says = [](Command command, const char* name) {
    const std::string text = help_text(command);
    const size_t begin = text.find("\n  --" + std::string(name) + " ");
    return text.substr(begin, text.find("\n  --", begin + 1) - begin);
  };
  EXPECT_HAS(says(Command::kEval, "eval-fraction"), "default: all of it");
  EXPECT_HAS(says(Command::kTrain, "eval-fraction"), "default 0.05");
  EXPECT_HAS(says(Command::kReport, "out"), "--out FILE");
  EXPECT_HAS(says(Command::kExport, "resume"), "--resume RUN");
  EXPECT_HAS(says(Command::kTrain, "resume"), "--resume [RUN]");
  EXPECT_HAS(says(Command::kInit, "recipe"), "--recipe fp32|bf16|fp16");
  EXPECT_HAS(train_error({"--recipe", "int8"}), "(give one of fp32, bf16, fp16)");
}

TEST(Help, NamesOnlyOptionsThatTheCommandTakes) {
  const std::regex flag("--([a-z][a-z-]*)");
  for (int index = 0; index < kCommandCount; ++index) {
    const Command command = static_cast<Command>(index);
    for (const OptionRow& row : option_table()) {
      if (!takes(row, command)) continue;
      const OptionRow own = row_for(row, command);
      const std::string text = std::string(own.help) + " " + std::string(own.unset_note);
      for (std::sregex_iterator at(text.begin(), text.end(), flag), end; at != end; ++at) {
        const OptionRow* named = find_option((*at)[1].str());
        ASSERT_NE(named, nullptr) << text;
        EXPECT_TRUE(takes(*named, command))
            << name_of(command) << " --" << row.name << ": " << text;
      }
    }
  }
}

TEST(Help, ExplainsGroupsWhereTheyCount) {
  for (const Command command : {Command::kTrain, Command::kPlan}) {
    const std::string text = help_text(command);
    for (const char* key : {"match", "lr_factor", "weight_decay", "frozen"}) EXPECT_HAS(text, key);
    // Its example is one.
    const size_t start = text.find("\n  [[group]]\n");
    ASSERT_NE(start, std::string::npos);
    const Options options = train({}, text.substr(start));
    ASSERT_EQ(options.groups.size(), 1u);
    EXPECT_EQ(options.groups[0].match, ".*embed.*");
    EXPECT_EQ(options.groups[0].lr_factor, 0.1);
    EXPECT_EQ(options.groups[0].weight_decay, 0.0);
  }
  EXPECT_EQ(help_text(Command::kDoctor).find("[[group]]"), std::string::npos);
  // The ranges that it gives.
  const std::string group = "[[group]]\nmatch = \"x\"\n";
  EXPECT_EQ(train_error({}, group + "lr_factor = 1000\nweight_decay = 1"), "no error");
  EXPECT_HAS(train_error({}, group + "lr_factor = 1001"), "is out of range");
  EXPECT_HAS(train_error({}, group + "weight_decay = 1.1"), "is out of range");
}

TEST(Help, ListsTheCommandsOptionsInTheLineWidth) {
  for (int index = 0; index < kCommandCount; ++index) {
    const Command command = static_cast<Command>(index);
    const std::string text = help_text(command);
    for (const OptionRow& row : option_table()) {
      const bool listed = text.find("  --" + std::string(row.name) + " ") != std::string::npos ||
                          text.find("  --" + std::string(row.name) + "\n") != std::string::npos;
      EXPECT_EQ(listed, takes(row, command)) << name_of(command) << " " << row.name;
    }
    size_t start = 0;
    for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', start)) {
      EXPECT_LE(end - start, 100u) << text.substr(start, end - start);
      start = end + 1;
    }
    EXPECT_EQ(parse_command(name_of(command)), command);
    EXPECT_HAS(help_text(), name_of(command));
  }
  EXPECT_FALSE(parse_command("trian").has_value());
  EXPECT_EQ(nearest_command("trian"), "train");
  EXPECT_EQ(nearest_command("gen"), "generate");
  EXPECT_EQ(nearest_command("unrelated"), "");
}

}  // namespace
}  // namespace strata::config
