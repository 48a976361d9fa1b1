// SPDX-License-Identifier: Apache-2.0
// `strata launch --hosts FILE`: which files are refused, and runs whose machines are all this one,
// reached by a script in the place of ssh.
#include "bindings/cli/host_file.h"
#include "engine/base/error.h"
#include "tests/cli/launched_nodes.h"

namespace strata::cli::test {
namespace {

std::string refusal_of(const std::string& text) {
  try {
    parse_host_file(text, "hosts");
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 2);
    return error.what();
  }
  return "";
}

TEST(HostFile, HasAMachineALine) {
  const HostFile file =
      parse_host_file("# two\n\ngpu1 slots=4\n  me@10.0.0.2  slots=4  # b\n", "h");
  EXPECT_EQ(file.hosts, (std::vector<std::string>{"gpu1", "me@10.0.0.2"}));
  EXPECT_EQ(file.ranks_on_host, 4);
  EXPECT_EQ(address_of_host(file.hosts[1]), "10.0.0.2");
  EXPECT_EQ(parse_host_file("a\nb\n", "h").ranks_on_host, 1);
}

TEST(HostFile, AnIpv6AddressIsInBracketsButForSsh) {
  const HostFile file = parse_host_file("me@[2001:db8::1]\n[::1]\n", "h");
  EXPECT_EQ(address_of_host(file.hosts[0]), "[2001:db8::1]");
  EXPECT_EQ(ssh_name_of_host(file.hosts[0]), "me@2001:db8::1");
  EXPECT_EQ(ssh_name_of_host(file.hosts[1]), "::1");
}

TEST(HostFile, MistakesAreNamedByLine) {
  for (const auto& [text, words] : {
           std::pair{"a\n-oProxyCommand=x\n", "hosts:2: -oProxyCommand=x: it is not the name of"},
           std::pair{"a\nb;reboot\n", "hosts:2: b;reboot: it is not the name of a machine"},
           std::pair{"a\nb:2222\n", "hosts:2: b:2222: it has a colon, and is no IPv6 address in"},
           std::pair{"::1\nb\n", "hosts:1: ::1: it has a colon, and is no IPv6 address in"},
           std::pair{"[b]\nb\n", "hosts:1: [b]: it is not the name of a machine"},
           std::pair{"@b\nb\n", "hosts:1: @b: it is not the name of a machine"},
           std::pair{"-o@b\nb\n", "hosts:1: -o@b: it is not the name of a machine"},
           std::pair{"a slots=x\n", "hosts:1: slots=x: it is not slots=N"},
           std::pair{"a slots=0\n", "hosts:1: slots=0: it is not slots=N"},
           std::pair{"a slots=1 max=2\n", "hosts:1: max=2: it is one word too many"},
           std::pair{"a slots=2\nb\n", "hosts:2: 1 ranks, and 2 on the first machine"},
           std::pair{"a slots=2\n", "hosts: hosts: it names fewer than two machines"},
       }) {
    EXPECT_NE(refusal_of(text).find(words), std::string::npos) << refusal_of(text);
  }
}

class LaunchHosts : public LaunchedNodes {
 protected:
  void SetUp() override {
    LaunchedNodes::SetUp();
    write_text(sandbox_ / "hosts", "one slots=1\ntwo slots=1\n");
    // Keeps its words, and runs the command as a shell of that machine does.
    write_script("ssh.sh", "printf '%s\\n' \"$@\" >> words-$2; exec sh -c \"$3\"");
  }
  void write_script(const std::string& name, const std::string& text) const {
    write_text(sandbox_ / name, "#!/bin/sh\n" + text + "\n");
    chmod((sandbox_ / name).c_str(), 0700);
  }
  static bool ends_within(Process& run, double limit_s) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s);
    while (!run.is_over() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return run.is_over();
  }
  Arguments on_hosts(const Arguments& command) const {
    Arguments words = {
        "launch",       "--hosts",      "hosts", "--ssh", sandbox_ / "ssh.sh" + std::string(" -x"),
        "--rendezvous", free_address(), "--"};
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }
};

TEST_F(LaunchHosts, RanksHaveTheStateOfThreads) {
  const Arguments more = {"--steps", "3"};
  EXPECT_EQ(state_of(on_hosts(train("it's run", more))),
            state_of(train("threads", {"--steps", "3", "--ranks", "2"})));
  EXPECT_EQ(losses_of("it's run"), losses_of("threads"));
  EXPECT_TRUE(std::filesystem::exists(sandbox_ / "words-two"));
}

TEST_F(LaunchHosts, TheSecretIsOnNoCommandLine) {
  Arguments words = on_hosts(train("run", {"--steps", "2"}));
  words.insert(words.begin() + 1, {"--secret-file", "secret"});
  Process run(words, here());
  EXPECT_EQ(run.wait(), 0) << run.err();
  for (const char* host : {"one", "two"}) {
    const std::string said = read_text(sandbox_ / (std::string("words-") + host));
    EXPECT_NE(said.find("--secret-file - "), std::string::npos) << said;
    EXPECT_EQ(said.find(std::string(16, 'a')), std::string::npos) << said;
  }
}

TEST_F(LaunchHosts, ASignalEndsAllMachinesInGoodOrder) {
  for (const int signal : {SIGTERM, SIGKILL}) {
    const std::string out = "run" + std::to_string(signal);
    Process run(on_hosts(train(out, {"--steps", "100000"})), here());
    ASSERT_TRUE(run.prints("\nstep ")) << run.out() << run.err();
    run.kill(signal);
    run.wait();
    EXPECT_TRUE(all_end(out, 20)) << run.err();
    EXPECT_TRUE(std::filesystem::exists(sandbox_ / (out + "/checkpoints"))) << run.err();
    EXPECT_NE(run.out().find("stopped on request"), std::string::npos) << run.out();
    if (signal == SIGKILL) continue;  // the output ends with the process
    EXPECT_NE(run.out().find("next     strata launch --hosts FILE -- train --out " + out),
              std::string::npos)
        << run.out();
  }
}

// Ranks have nothing to save yet, and end with the signal that each machine gets.
TEST_F(LaunchHosts, ASignalBeforeTheFirstStepIsTheExitCode) {
  write_script("ssh.sh", "read -r secret; echo begun >&2; read -r nothing; exit 143");
  Process run(on_hosts(train("run", {"--steps", "3"})), here());
  ASSERT_TRUE(run.prints_error("begun\nbegun\n")) << run.err();
  run.kill(SIGINT);
  EXPECT_EQ(run.wait(), 130) << run.err();
  EXPECT_EQ(run.err().find("ended with exit code"), std::string::npos) << run.err();
}

TEST_F(LaunchHosts, AMachineThatCannotBeReachedEndsTheOthers) {
  write_script("ssh.sh", "if [ $2 = two ]; then exit 255; fi; exec sh -c \"$3\"");
  Process run(on_hosts(train("run", {"--steps", "3"})), here());
  EXPECT_NE(run.wait(), 0);
  EXPECT_NE(run.err().find("hosts: two: ssh ended with exit code 255 (look at what it prints, and "
                           "try: " +
                           std::string(sandbox_ / "ssh.sh") + " -x two true)"),
            std::string::npos)
      << run.err();
  EXPECT_TRUE(all_end("run", 5));
}

TEST_F(LaunchHosts, ASignalEndsAnSshThatNeverConnects) {
  write_script("ssh.sh", "echo begun >&2; sleep 1000");
  Process run(on_hosts(train("run", {"--steps", "3"})), here());
  ASSERT_TRUE(run.prints_error("begun\nbegun\n")) << run.err();
  run.kill(SIGTERM);
  EXPECT_TRUE(ends_within(run, 10)) << run.err();
  EXPECT_EQ(run.wait(), 4);
  EXPECT_NE(run.err().find("hosts: two: ssh did not end by itself"), std::string::npos)
      << run.err();
}

TEST_F(LaunchHosts, AnSshThatIsStoppedIsNamedAndCanBeEnded) {
  write_script("ssh.sh", "kill -STOP $$; sleep 1000");
  Process run(on_hosts(train("run", {"--steps", "3"})), here());
  ASSERT_TRUE(run.prints_error("hosts: two: ssh is stopped (try: kill -CONT ")) << run.err();
  run.kill(SIGTERM);
  EXPECT_TRUE(ends_within(run, 10)) << run.err();
}

TEST_F(LaunchHosts, ASecondSignalEndsAnSshThatIgnoresIt) {
  write_script("ssh.sh", "trap '' TERM; read -r secret; echo begun >&2; sleep 1000");
  Process run(on_hosts(train("run", {"--steps", "3"})), here());
  ASSERT_TRUE(run.prints_error("begun\nbegun\n")) << run.err();
  run.kill(SIGTERM);
  EXPECT_FALSE(ends_within(run, 1)) << run.err();  // it might be writing a checkpoint
  run.kill(SIGTERM);
  EXPECT_TRUE(ends_within(run, 15)) << run.err();
}

TEST_F(LaunchHosts, AMachineThatFailsIsNamedWithItsCode) {
  write_script("ssh.sh", "if [ $2 = two ]; then exit 127; fi; exec sh -c \"$3\"");
  Arguments words = on_hosts(train("run", {"--steps", "3"}));
  words.insert(words.begin() + 1, {"--rendezvous-deadline", "1"});
  Process run(words, here());
  EXPECT_NE(run.wait(), 0);
  EXPECT_NE(run.err().find("hosts: two: the run there ended with exit code 127"), std::string::npos)
      << run.err();
}

TEST_F(LaunchHosts, ARunThatIsCompletedWithoutALostMachineIsASuccess) {
  write_script("ssh.sh", "if [ $2 = two ]; then exit 137; fi; exec sh -c \"$3\"");
  Arguments words = on_hosts(train("run", {"--steps", "3"}));
  words.insert(words.begin() + 1, {"--max-restarts", "1", "--min-ranks", "1"});
  words.insert(words.begin() + 1, {"--rendezvous-deadline", "2"});
  Process run(words, here());
  EXPECT_EQ(run.wait(), 0) << run.err();
  EXPECT_NE(run.err().find("hosts: two: the run there ended with exit code 137"), std::string::npos)
      << run.err();
}

// The machine hears of its lost connection, and has all ranks stop in good order.
TEST_F(LaunchHosts, ARunThatALostConnectionStopsIsNoSuccess) {
  write_script("ssh.sh",
               "test $2 = one && exec sh -c \"$3\"; read -r secret; mkfifo in; "
               "setsid sh -c \"$3\" < in > out 2>&1 & exec 3> in; echo $secret >&3; "
               "while ! test -s run/metrics.jsonl; do sleep 0.1; done; exit 255");
  Arguments words = on_hosts(train("run", {"--steps", "20000"}));
  words.insert(words.begin() + 1, {"--max-restarts", "1"});
  Process run(words, here());
  EXPECT_EQ(run.wait(), 4) << run.err();
  EXPECT_NE(run.err().find("launch: another machine lost its connection, and so the run was "
                           "stopped (resume it)"),
            std::string::npos)
      << run.err();
  EXPECT_TRUE(all_end("run", 20));
}

TEST_F(LaunchHosts, AnSshThatCannotStartIsNamed) {
  Arguments words = on_hosts(train("run", {"--steps", "3"}));
  words[4] = "no-such-ssh -p 2";
  Process run(words, here());
  EXPECT_EQ(run.wait(), 2);
  EXPECT_NE(run.err().find("ssh: cannot start no-such-ssh: No such file or directory"),
            std::string::npos)
      << run.err();
}

// So that it asks nothing on the terminal.
TEST_F(LaunchHosts, SshHasASessionOfItsOwnAndAsksNothing) {
  write_script("ssh",
               "test $(cut -d ' ' -f 6 /proc/$$/stat) = $$ && echo \"$1 $2 $3\" > words-$3; test "
               "$3 = one && exit 255; sleep 1000");
  Arguments words = on_hosts(train("run", {"--steps", "3"}));
  words.erase(words.begin() + 3, words.begin() + 5);
  ProcessOptions options = here();
  options.wrap = {"env", "PATH=" + sandbox_.path() + ":" + std::getenv("PATH")};
  Process run(words, options);
  EXPECT_EQ(run.wait(), 4);
  EXPECT_EQ(read_text(sandbox_ / "words-one"), "-o BatchMode=yes one\n") << run.err();
}

TEST_F(LaunchHosts, TheFirstMachineHasAnAddressOrARendezvous) {
  write_text(sandbox_ / "hosts", "alias.invalid\ntwo\n");
  Arguments words = on_hosts(train("run", {"--steps", "3"}));
  words.erase(words.begin() + 5, words.begin() + 7);
  Process run(words, here());
  EXPECT_EQ(run.wait(), 2);
  EXPECT_NE(run.err().find("hosts: alias.invalid: "), std::string::npos) << run.err();
  EXPECT_NE(run.err().find("(give --rendezvous HOST:PORT"), std::string::npos) << run.err();
}

TEST_F(LaunchHosts, MistakesAreToldOnce) {
  Process lost(on_hosts(train("run", {"--steps", "0.5"})), here());
  EXPECT_EQ(lost.wait(), 2);
  EXPECT_FALSE(std::filesystem::exists(sandbox_ / "words-one")) << lost.err();
  Process none({"launch", "--hosts", "nowhere", "--", "train"}, here());
  EXPECT_EQ(none.wait(), 2);
  EXPECT_NE(none.err().find("hosts: cannot open nowhere: "), std::string::npos) << none.err();
  Process directory({"launch", "--hosts", "model", "--", "train"}, here());
  EXPECT_EQ(directory.wait(), 2);
  EXPECT_NE(directory.err().find("hosts: cannot read model: Is a directory (give another path)"),
            std::string::npos)
      << directory.err();
}

}  // namespace
}  // namespace strata::cli::test
