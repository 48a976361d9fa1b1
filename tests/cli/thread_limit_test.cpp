// SPDX-License-Identifier: Apache-2.0
// Where the system gives no more threads or memory, a command ends with an error that says what to
// do: whichever of its threads or allocations is the first that it does not get.
#include "tests/cli/mistake.h"

namespace strata::cli::test {
namespace {

class ThreadLimit : public Mistakes {
 protected:
  // Another user has the files of the runs.
  void SetUp() override {
    Mistakes::SetUp();
    std::filesystem::permissions(place_.path(), std::filesystem::perms(0777));
    std::filesystem::copy(sandbox_ / "good", place_ / "good");
    std::filesystem::copy(STRATA_TEXT, place_ / "text.txt");
    std::filesystem::copy(STRATA_MACHINE, place_ / "machine.toml");
  }

  static Arguments train_there(const Arguments& more) {
    Arguments arguments = train(more);
    std::ranges::replace(arguments, std::string(STRATA_TEXT), "text.txt");
    std::ranges::replace(arguments, std::string(STRATA_MACHINE), "machine.toml");
    return arguments;
  }

  // Of runs with a limit from `first` on: how many were refused for it before one succeeded.
  int refusals(const Arguments& arguments, uint64_t first, uint64_t last) {
    int refused = 0;
    for (uint64_t limit = first; limit <= last; ++limit) {
      SCOPED_TRACE(arguments[0] + " with at most " + std::to_string(limit) + " processes");
      Process process(arguments,
                      {.directory = place_.path(), .drops_root = true, .process_limit = limit});
      const int code = process.wait();
      if (code == 0) return refused;
      ++refused;
      EXPECT_EQ(code, kFailed) << process.err();
      EXPECT_NE(process.err().find("cannot start a thread: "), std::string::npos) << process.err();
      EXPECT_NE(process.err().find("ulimit -u"), std::string::npos) << process.err();
    }
    ADD_FAILURE() << "no limit is enough";
    return refused;
  }

  // They may not go where the build is, in somebody's home.
  const strata::test::TemporaryDirectory place_{std::filesystem::temp_directory_path()};
};

TEST_F(ThreadLimit, EndsARunWithAnError) {
  if (geteuid() != 0) GTEST_SKIP() << "another user is needed, whose processes are counted";
  EXPECT_GT(refusals(train_there({"--threads", "1", "--ranks", "2", "--force"}), 1, 64), 8);
  EXPECT_GT(refusals(train_there({"--threads", "4", "--force"}), 1, 64), 3);
}

TEST_F(ThreadLimit, OfAddressSpaceEndsARunWithAnError) {
  int refused = 0;
  for (int mib = 80; mib <= 400; mib += 20) {
    SCOPED_TRACE(std::to_string(mib) + " MiB");
    const std::string limited = "ulimit -v " + std::to_string(mib << 10) + " && exec \"$@\"";
    Process process(train({"--threads", "4", "--force"}),
                    {.directory = sandbox_.path(), .wrap = {"bash", "-c", limited, "bash"}});
    const int code = process.wait();
    refused += code != 0;
    EXPECT_TRUE(code == 0 || code == kFailed || code == kDoesNotFit) << process.err();
    EXPECT_TRUE(code == 0 || process.err().ends_with(")\n")) << process.err();
  }
  EXPECT_GE(refused, 2);
}

}  // namespace
}  // namespace strata::cli::test
