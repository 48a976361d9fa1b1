// SPDX-License-Identifier: Apache-2.0
// The completion scripts in the shells that they are for: what each offers for a command line.
#include <set>

#include "tests/cli/mistake.h"

namespace strata::cli::test {
namespace {

using Words = std::set<std::string>;

// Asks a shell, with the script sourced, in a directory with folders "some" and "some more" and the
// files "some.toml" and "other.toml". "zsh_fpath" has it as a file that zsh loads at the first TAB,
// which is the one that is asked with.
class Completion : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    for (const char* name : {"some", "some more"}) std::filesystem::create_directory(home_ / name);
    for (const char* name : {"some.toml", "other.toml"}) write_text(home_ / name, "");
    const std::string& shell = shell_;
    if (std::system(("command -v " + shell + " > /dev/null").c_str()) != 0) {
      GTEST_SKIP() << shell << " is not installed";
    }
    Process process({"completion", shell}, {});
    ASSERT_EQ(process.wait(), 0) << process.err();
    write_text(home_ / "script", process.out());
    std::filesystem::create_directory(home_ / ".functions");
    if (GetParam() != shell_) {
      std::filesystem::rename(home_ / "script", home_ / ".functions/_strata");
      write_text(home_ / "script", "");
    }
    write_text(home_ / ".zshrc", kZshrc);
    write_text(home_ / "ask.sh", shell == "bash" ? kAskBash : shell == "zsh" ? kAskZsh : kAskFish);
  }

  // Without what a shell adds to a word: the '/' of a directory, the flag before '='.
  Words offered(const std::string& line) const {
    std::filesystem::remove(home_ / "result");
    const std::string& shell = shell_;
    const std::string command = "cd '" + home_.path() + "' && timeout 60 " + shell +
                                (shell == "fish" ? " --no-config" : "") + " ask.sh '" + line +
                                "' 2> complaints";
    EXPECT_EQ(std::system(command.c_str()), 0) << line;
    EXPECT_EQ(read_text(home_ / "complaints"), "") << line;
    Words words;
    std::ifstream file(home_ / "result");
    for (std::string word; std::getline(file, word);) {
      word = word.substr(0, word.find('\t'));
      if (word.starts_with("--") && word.find('=') + 1 < word.size()) {
        word = word.substr(word.find('=') + 1);
      }
      while (!word.empty() && std::string("/=").find(word.back()) != std::string::npos) {
        word.pop_back();
      }
      std::erase(word, '\\');
      if (!word.empty()) words.insert(word);
    }
    return words;
  }

  static constexpr const char* kAskBash = R"(
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
  static constexpr const char* kAskFish = R"(
source ./script
complete -C $argv[1] > result
)";
  // Completion needs a terminal: the line is typed into a shell that has one.
  static constexpr const char* kAskZsh = R"(
zmodload zsh/zpty
zpty shell 'ZDOTDIR=. zsh -d -i 2>> complaints'
zpty -w -n shell "$1"$'\t'
while zpty -r shell line 2> /dev/null; do :; done
)";
  static constexpr const char* kZshrc = R"(
fpath=($PWD/.functions $fpath)
autoload -Uz compinit && compinit -u -D
source ./script
hits=()
compadd() {
  local -a some
  case " $* " in (*' -O '*|*' -A '*|*' -D '*) builtin compadd "$@"; return ;; esac
  builtin compadd -A some "$@"
  hits+=("${some[@]}")
  builtin compadd "$@"
}
offer() { _main_complete; print -rl -- "${hits[@]}" > result; exit }
zle -C offer complete-word offer
bindkey '^I' offer
)";

  const std::string shell_ = std::string(GetParam()).substr(0, std::string(GetParam()).find('_'));
  const Sandbox home_;
};

TEST_P(Completion, OfCommands) {
  EXPECT_EQ(offered("strata tr"), Words({"train"}));
  EXPECT_EQ(offered("strata "), Words({"init", "train", "eval", "plan", "doctor", "export",
                                       "generate", "models", "bench", "completion", "help"}));
  EXPECT_EQ(offered("strata completion "), Words({"bash", "zsh", "fish"}));
  EXPECT_EQ(offered("strata completion z"), Words({"zsh"}));
  EXPECT_EQ(offered("strata bench i"), Words({"io"}));
  EXPECT_EQ(offered("strata help tr"), Words({"train"}));
}

TEST_P(Completion, OfFlags) {
  EXPECT_EQ(offered("strata train --host-m"), Words({"--host-memory"}));
  EXPECT_EQ(offered("strata train --json --nvme-"), Words({"--nvme-rate"}));
  EXPECT_EQ(offered("strata bench io --compare-"), Words({"--compare-fio", "--compare-checksums"}));
  EXPECT_EQ(offered("strata eval --warmup-s"), Words()) << "a flag of train alone";
  EXPECT_EQ(offered("strata eval --model train --warmup-s"), Words()) << "train is a directory";
  EXPECT_EQ(offered("strata train --resume --js"), Words({"--json"})) << "its value may lack";
}

TEST_P(Completion, OfValues) {
  EXPECT_EQ(offered("strata train --schedule co"), Words({"constant", "cosine"}));
  EXPECT_EQ(offered("strata train --schedule=co"), Words({"constant", "cosine"}));
  EXPECT_EQ(offered("strata train --shuffle o"), Words({"on", "off"}));
  EXPECT_EQ(offered("strata bench io --io t"), Words({"threads"}));
  EXPECT_EQ(offered("strata train --steps "), Words()) << "a number";
}

TEST_P(Completion, OfPaths) {
  const Words folders = {"some", "some more"};
  EXPECT_EQ(offered("strata plan --model so"), folders);
  EXPECT_EQ(offered("strata plan --model=so"), folders);
  EXPECT_EQ(offered("strata train --resume so"), folders);
  EXPECT_EQ(offered("strata bench io --nvme so"), folders);
  EXPECT_EQ(offered("strata train --config o"), Words({"other.toml"}));
  EXPECT_EQ(offered("strata bench io --profile o"), Words({"other.toml"}));
}

// Every flag that the help lists.
TEST_P(Completion, HasAllFlags) {
  for (const char* command :
       {"init", "train", "eval", "plan", "doctor", "export", "generate", "models", "bench io"}) {
    Arguments arguments = {command, "--help"};
    if (arguments[0] == "bench io") arguments = {"bench", "io", "--help"};
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
    EXPECT_GE(flags, 2) << command;
  }
}

INSTANTIATE_TEST_SUITE_P(In, Completion, testing::Values("bash", "zsh", "zsh_fpath", "fish"),
                         [](const auto& one) { return std::string(one.param); });

TEST(CompletionMistakes, ZshWithoutItsSystemIsTold) {
  if (std::system("command -v zsh > /dev/null") != 0) GTEST_SKIP() << "zsh is not installed";
  const Sandbox home;
  const std::string command = "cd '" + home.path() +
                              "' && zsh -f -c 'source <(" STRATA_PROGRAM
                              " completion zsh)' 2> complaints";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(read_text(home / "complaints"),
            "strata completion: not loaded: autoload -Uz compinit && compinit has to come before "
            "it\n");
}

TEST(CompletionMistakes, NameTheShells) {
  Process none({"completion"}, {});
  EXPECT_EQ(none.wait(), kUsage);
  EXPECT_NE(none.err().find("bash|zsh|fish"), std::string::npos) << none.err();
  Process other({"completion", "bsh"}, {});
  EXPECT_EQ(other.wait(), kUsage);
  EXPECT_NE(other.err().find("did you mean bash?"), std::string::npos) << other.err();
}

}  // namespace
}  // namespace strata::cli::test
