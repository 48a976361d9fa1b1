// SPDX-License-Identifier: Apache-2.0
// The completion script in bash: what it offers for a command line.
#include <set>

#include "tests/cli/mistake.h"

namespace strata::cli::test {
namespace {

using Words = std::set<std::string>;

// Asks bash, with the script sourced, in a directory with folders "some" and "some more" and the
// files "some.toml" and "other.toml".
class Completion : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"some", "some more"}) std::filesystem::create_directory(home_ / name);
    for (const char* name : {"some.toml", "other.toml"}) write_text(home_ / name, "");
    Process process({"completion", "bash"}, {});
    ASSERT_EQ(process.wait(), 0) << process.err();
    write_text(home_ / "script", process.out());
    write_text(home_ / "ask.sh", kAsk);
  }

  Words offered(const std::string& line) const {
    std::filesystem::remove(home_ / "result");
    const std::string command =
        "cd '" + home_.path() + "' && timeout 60 bash ask.sh '" + line + "' 2> complaints";
    EXPECT_EQ(std::system(command.c_str()), 0) << line;
    EXPECT_EQ(read_text(home_ / "complaints"), "") << line;
    Words words;
    std::ifstream file(home_ / "result");
    for (std::string word; std::getline(file, word);) {
      if (!word.empty()) words.insert(word);
    }
    return words;
  }

  static constexpr const char* kAsk = R"(
source ./script
line=$1
COMP_WORDS=()
for word in $line; do  # bash takes '=' for a word
  while [[ $word == *=* ]]; do
    COMP_WORDS+=("${word%%=*}" =)
    word=${word#*=}
  done
  if [[ -n $word ]]; then COMP_WORDS+=("$word"); fi
done
if [[ $line == *' ' ]]; then COMP_WORDS+=(''); fi
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_strata
printf '%s\n' "${COMPREPLY[@]}" > result
)";

  const Sandbox home_;
};

TEST_F(Completion, OfCommands) {
  EXPECT_EQ(offered("strata tr"), Words({"train"}));
  EXPECT_EQ(offered("strata "),
            Words({"init", "train", "launch", "eval", "plan", "doctor", "export", "generate",
                   "tokenize", "models", "bench", "report", "completion", "help"}));
  EXPECT_EQ(offered("strata completion "), Words({"bash"}));
  EXPECT_EQ(offered("strata bench i"), Words({"io"}));
  EXPECT_EQ(offered("strata bench "), Words({"io", "link", "kernels"}));
  EXPECT_EQ(offered("strata help tr"), Words({"train"}));
}

TEST_F(Completion, OfFlags) {
  EXPECT_EQ(offered("strata train --host-m"), Words({"--host-memory"}));
  EXPECT_EQ(offered("strata train --json --nvme-"), Words({"--nvme-rate"}));
  EXPECT_EQ(offered("strata bench io --compare-"), Words({"--compare-fio", "--compare-checksums"}));
  EXPECT_EQ(offered("strata bench kernels --rec"), Words({"--recipe"}));
  EXPECT_EQ(offered("strata bench link --rec"), Words()) << "a flag of bench kernels alone";
  EXPECT_EQ(offered("strata eval --warmup-s"), Words()) << "a flag of train alone";
  EXPECT_EQ(offered("strata eval --model train --warmup-s"), Words()) << "train is a directory";
  EXPECT_EQ(offered("strata train --resume --js"), Words({"--json"})) << "its value may lack";
}

TEST_F(Completion, OfValues) {
  EXPECT_EQ(offered("strata train --schedule co"), Words({"constant", "cosine"}));
  EXPECT_EQ(offered("strata train --schedule=co"), Words({"constant", "cosine"}));
  EXPECT_EQ(offered("strata train --shuffle o"), Words({"on", "off"}));
  EXPECT_EQ(offered("strata bench io --io t"), Words({"threads"}));
  EXPECT_EQ(offered("strata train --steps "), Words()) << "a number";
}

TEST_F(Completion, OfPaths) {
  const Words folders = {"some", "some more"};
  EXPECT_EQ(offered("strata plan --model so"), folders);
  EXPECT_EQ(offered("strata plan --model=so"), folders);
  EXPECT_EQ(offered("strata train --resume so"), folders);
  EXPECT_EQ(offered("strata bench io --nvme so"), folders);
  EXPECT_EQ(offered("strata train --config o"), Words({"other.toml"}));
  EXPECT_EQ(offered("strata bench io --profile o"), Words({"other.toml"}));
}

// Every flag that the help lists.
TEST_F(Completion, HasAllFlags) {
  for (const char* command :
       {"init", "train", "launch", "eval", "plan", "doctor", "export", "generate", "tokenize",
        "models", "bench io", "bench link", "bench kernels", "report"}) {
    Arguments arguments = {command, "--help"};
    if (arguments[0].starts_with("bench ")) arguments = {"bench", arguments[0].substr(6), "--help"};
    Process help(arguments, {});
    ASSERT_EQ(help.wait(), 0);
    const Words words = offered("strata " + std::string(command) + " --");
    int flags = 0;
    const std::string text = help.out();
    const std::string begin = "\n  --";
    for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
      const size_t start = at + begin.size() - 2;
      const std::string flag = text.substr(start, text.find_first_of(" \n", start) - start);
      EXPECT_TRUE(words.contains(flag)) << command << " " << flag;
      ++flags;
    }
    EXPECT_GE(flags, arguments[0] == "launch" ? 1 : 2) << command;
  }
}

TEST_F(Completion, NamesTheShell) {
  Process none({"completion"}, {});
  EXPECT_EQ(none.wait(), kUsage);
  EXPECT_NE(none.err().find("no shell is given (strata completion bash)"), std::string::npos);
  Process other({"completion", "bsh"}, {});
  EXPECT_EQ(other.wait(), kUsage);
  EXPECT_NE(other.err().find("no script for this shell (give bash)"), std::string::npos);
}

}  // namespace
}  // namespace strata::cli::test
