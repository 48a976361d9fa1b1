// SPDX-License-Identifier: Apache-2.0
// Options that init, generate, tokenize, bench and plan have beside those of training.
#include "engine/config/option_rows.h"

namespace strata::config::rows {
namespace {

constexpr std::string_view kBenchModes[] = {"read", "write", "mixed"};

constexpr OptionRange kVocabulary = {257, 1 << 24};
constexpr OptionRange kTemperature = {0, 100};
constexpr OptionRange kBlock = {4 * kKiB, 64 * kMiB};
constexpr OptionRange kSeconds = {0.05, 86400};
constexpr OptionRange kTokens = {1, static_cast<double>(int64_t{1} << 40)};

constexpr std::string_view kShape = "Shape of the new model";
constexpr std::string_view kText = "Text";
constexpr std::string_view kDrives = "What is measured";
constexpr std::string_view kCompared = "Comparisons";
constexpr std::string_view kQuestion = "What the drives are for";
constexpr std::string_view kOutput = "Output";

constexpr OptionRow kOthers[] = {
    {"vocab-size", kInt, &O::vocab_size, kInit, kShape, "N", "tokens", kVocabulary, "",
     "Size of the tokenizer that is trained on --data."},
    {"hidden", kInt, &O::hidden, kInit, kShape, "N", "", up_to(1 << 20), "", "Width of the model."},
    {"layers", kInt, &O::layers, kInit, kShape, "N", "", up_to(1 << 14), "",
     "Number of transformer blocks."},
    {"heads", kInt, &O::heads, kInit, kShape, "N", "", up_to(1 << 14), "",
     "Number of attention heads."},
    {"kv-heads", kInt, &O::kv_heads, kInit, kShape, "N", "", up_to(1 << 14), "as many as --heads",
     "Number of key-value heads; fewer than --heads is grouped-query attention."},
    {"feed-forward", kInt, &O::feed_forward, kInit, kShape, "N", "", up_to(1 << 24),
     "8/3 of --hidden, in steps of 64", "Width inside the MLP."},
    {"tied", kOnOff, &O::tied, kInit, kShape, "", "", kAny, "",
     "Use the matrix of the embedding as the output head too."},

    {"prompt",
     kTexts,
     &O::prompts,
     kGenerate,
     kText,
     "TEXT",
     "",
     kAny,
     "empty",
     "Text to continue; give it several times for several texts.",
     {},
     true},
    {"prompts-file", kString, &O::prompts_file, kGenerate, kText, "FILE", "", kAny, "none",
     "Texts to continue, instead of --prompt: one a line; in a .jsonl file, the prompt, or with "
     "--chat the messages, of each line's object."},
    {"chat", kSwitch, &O::chat, kGenerate, kText, "", "", kAny, "",
     "Answer each text as a user's message, by the model's chat template."},
    {"system", kString, &O::system, kGenerate, kText, "TEXT", "", kAny, "none",
     "The system message before those of --chat."},
    {"stop", kTexts, &O::stop, kGenerate, kText, "TEXT", "", kAny, "none",
     "End a text where the model writes this, which is left out; give it several times for "
     "several."},
    {"max-new-tokens", kInt, &O::max_new_tokens, kGenerate, kText, "N", "tokens", up_to(1 << 24),
     "the model's, or 64", "Largest number of tokens to add."},
    {"temperature", kFloat, &O::temperature, kGenerate, kText, "F", "", kTemperature,
     "the model's, or 0.8", "How random the choice of tokens is; 0 takes the most likely token."},
    {"top-k", kInt, &O::top_k, kGenerate, kText, "N", "tokens", kFromOne, "the model's, or off",
     "Choose among the N most likely tokens."},
    {"top-p", kFloat, &O::top_p, kGenerate, kText, "F", "", kAboveZeroToOne, "the model's, or 1",
     "Choose among the most likely tokens that have this probability together."},

    {"text",
     kString,
     &O::text,
     kTokenize,
     kText,
     "TEXT",
     "",
     kAny,
     "standard input",
     "Text to tokenize, instead of --data.",
     {},
     true},
    {"special", kOnOff, &O::special, kTokenize, kText, "", "", kAny, "",
     "Add the tokens that the model gets before and after a text."},
    {"pieces", kSwitch, &O::pieces, kTokenize, kOutput, "", "", kAny, "",
     "Print each token as its vocabulary spells it, too."},
    {"decode", kSwitch, &O::decode, kTokenize, kOutput, "", "", kAny, "",
     "Print the text that the tokens decode to, too."},
    {"count", kSwitch, &O::count, kTokenize, kOutput, "", "", kAny, "",
     "Print only the numbers of texts, bytes and tokens."},

    {"size", kSize, &O::size, kBench, kDrives, "SIZE", "bytes", kFromOne, "",
     "Size of the scratch in all directories together; give more than the drives' caches hold."},
    {"block", kSizes, &O::blocks, kBench, kDrives, "SIZE[,SIZE]", "", kBlock, "",
     "Sizes of a request, which are powers of two; runs use 1MiB."},
    {"depth", kInts, &O::depths, kBench, kDrives, "N[,N]", "requests", up_to(1024), "",
     "Requests in flight over all files; more keep fast drives busy, but each takes longer."},
    {"files", kInts, &O::files, kBench, kDrives, "N[,N]", "files", up_to(64), "",
     "Files in each directory."},
    {"mode", kList, &O::modes, kBench, kDrives, "", "", kAny, "",
     "What is measured: reads, writes, or both by turns, with every block, depth and files.",
     kBenchModes},
    {"seconds", kFloat, &O::seconds, kBench | kBenchDevice, kDrives, "F", "seconds", kSeconds, "",
     "Length of each measurement; minutes show where a drive's write cache ends."},
    {"write-limit", kSize, &O::write_limit, kBench, kDrives, "SIZE", "bytes", kFromOne, "",
     "The most that all measurements together write, because writing wears drives."},
    {"no-checksums", kSwitch, &O::no_checksums, kBench, kDrives, "", "", kAny, "",
     "Do not verify what is read."},

    {"compare-fio", kSwitch, &O::compare_fio, kBench, kCompared, "", "", kAny, "",
     "Compare with fio, measured by turns with the same requests; the exit code is 1 when fio is "
     "faster."},
    {"compare-checksums", kSwitch, &O::compare_checksums, kBench, kCompared, "", "", kAny, "",
     "Measure what checksums cost, with and without them by turns."},
    {"rounds", kInt, &O::rounds, kBench, kCompared, "N", "rounds", up_to(1000), "",
     "Turns of a comparison; more make its interval narrower, and fewer than 7 give no verdict."},
    {"baseline", kString, &O::baseline, kBench, kCompared, "FILE", "", kAny, "",
     "JSON of an earlier run to compare with; the exit code is 1 when a row is slower than "
     "--tolerance allows or its p99 latency is 3 times as high."},
    {"tolerance", kFloat, &O::tolerance, kBench, kCompared, "F", "of the rate", kRatio, "",
     "How much lower than the baseline's a rate may be; drives vary by some percent."},

    {"for", kString, &O::for_model, kBench, kQuestion, "PATH", "", kAny, "",
     "The model, a directory or its config.json, to train with these drives; says whether they are "
     "fast enough for --tokens."},
    {"tokens", kInt, &O::tokens, kBench, kQuestion, "N", "tokens", kTokens, "none",
     "Tokens of a step of --for: micro-batch x accumulate x sequence length."},
    {"profile", kString, &O::profile, kBench, kQuestion, "FILE", "", kAny, "",
     "Write this machine's profile with these drives to a file, for strata plan --machine."},

    {"explain", kSwitch, &O::explain, kPlan, kOutput, "", "", kAny, "",
     "Print every operation of a step too."},
    {"explain-lines", kSwitch, &O::explain_lines, kPlan, kOutput, "", "", kAny, "",
     "Say below each line of the plan what it means."},
    {"compare", kOptional, OptionalField{&O::compare, &O::compare_machine}, kPlan, kOutput,
     "[FILE]", "", kAny, "",
     "Compare strategies, and what more memory, drives or ranks would change; FILE is the profile "
     "of another machine to compare with."},
    {"csv", kSwitch, &O::csv, kBench, kOutput, "", "", kAny, "",
     "Print the results as CSV, a row for each measurement and file."},
    {"json", kSwitch, &O::json, kAll | kModels | kReport, kOutput, "", "", kAny, "",
     "Print the answer as JSON on standard output."},
    {"help", kSwitch, &O::help, kAll | kModels | kReport | kLaunch, kOutput, "", "", kAny, "",
     "Print this text."},
};

}  // namespace

std::span<const OptionRow> of_others() {
  return kOthers;
}

}  // namespace strata::config::rows
