// SPDX-License-Identifier: Apache-2.0
// The library handles no signal: the caller's handlers and mask are the same during and after a
// store and a run as before, and these handlers get the signals.
#include <csignal>

#include <atomic>
#include <cstring>
#include <fstream>

#include "tests/c/c_fixture.h"

namespace strata::test {
namespace {

constexpr int kOwn[] = {SIGINT, SIGTERM, SIGPIPE};  // that the caller handles
constexpr int kSignals[] = {SIGINT,  SIGTERM, SIGPIPE, SIGHUP,  SIGQUIT, SIGALRM,
                            SIGUSR1, SIGUSR2, SIGCHLD, SIGXFSZ, SIGIO,   SIGBUS};

std::atomic<int> handled = 0;
std::atomic<int> last = 0;

void on_signal(int number) {
  ++handled;
  last = number;
}

class CSignals : public CApi {
 protected:
  CSignals() {
    struct sigaction own = {};
    own.sa_handler = on_signal;
    own.sa_flags = SA_RESTART;
    sigemptyset(&own.sa_mask);
    sigaddset(&own.sa_mask, SIGUSR2);
    for (const int number : kOwn) {
      before_.emplace_back();
      sigaction(number, &own, &before_.back());
    }
    handled = 0;
  }
  ~CSignals() override {
    for (size_t i = 0; i < before_.size(); ++i) sigaction(kOwn[i], &before_[i], nullptr);
  }
  struct Handling {
    std::vector<struct sigaction> actions;
    sigset_t mask = {};
  };
  static Handling handling() {
    Handling now;
    for (const int number : kSignals) {
      struct sigaction action = {};
      EXPECT_EQ(sigaction(number, nullptr, &action), 0);
      now.actions.push_back(action);
    }
    pthread_sigmask(SIG_SETMASK, nullptr, &now.mask);
    return now;
  }
  static void expect_same(const Handling& now, const Handling& before, const char* after) {
    for (size_t i = 0; i < before.actions.size(); ++i) {
      EXPECT_EQ(now.actions[i].sa_handler, before.actions[i].sa_handler)
          << after << ": " << strsignal(kSignals[i]);
      EXPECT_EQ(now.actions[i].sa_flags, before.actions[i].sa_flags)
          << after << ": " << strsignal(kSignals[i]);
      for (int member = 1; member < NSIG; ++member) {
        EXPECT_EQ(sigismember(&now.actions[i].sa_mask, member),
                  sigismember(&before.actions[i].sa_mask, member))
            << after << ": " << strsignal(kSignals[i]);
      }
    }
    for (int member = 1; member < NSIG; ++member) {
      EXPECT_EQ(sigismember(&now.mask, member), sigismember(&before.mask, member)) << after;
    }
  }

 private:
  std::vector<struct sigaction> before_;
};

TEST_F(CSignals, AStoreLeavesTheCallersHandlers) {
  const Handling before = handling();
  strata_store* store = loaded(options(on_drive()));
  expect_same(handling(), before, "load");
  EXPECT_EQ(step(store).applied, 1);
  expect_same(handling(), before, "step");
  const char* path = nullptr;
  EXPECT_EQ(strata_store_save(store, (directory_ + "/saved").c_str(), &path), STRATA_OK) << text();
  raise(SIGTERM);  // to the caller's handler; the library goes on
  EXPECT_EQ(handled, 1);
  EXPECT_EQ(last, SIGTERM);
  kill(getpid(), SIGPIPE);  // to whichever thread
  for (int i = 0; i < 5000 && handled < 2; ++i) usleep(1000);
  EXPECT_EQ(last, SIGPIPE);
  EXPECT_EQ(step(store).applied, 1);
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
  expect_same(handling(), before, "close");
}

TEST_F(CSignals, ARunLeavesTheCallersHandlers) {
  const Handling before = handling();
  std::ofstream file(directory_ + "/tokens.bin", std::ios::binary);
  for (int i = 0; i <= 12 * 8; ++i) file << static_cast<char>(i * i % 59) << '\0';
  file.close();
  const std::string json = "{\"model\": \"" STRATA_MODELS
                           "/tinyllama\", \"sequence_length\": 8, \"threads\": 1, \"steps\": 2, "
                           "\"data\": \"" +
                           directory_ + "/tokens.bin\", \"out\": \"" + directory_ +
                           "/run\", \"machine\": \"" STRATA_MACHINE "\"}";
  strata_train* train = nullptr;
  ASSERT_EQ(strata_train_open(json.c_str(), nullptr, nullptr, &train), STRATA_OK) << text();
  auto callbacks = sized<strata_callbacks>();
  callbacks.context = const_cast<Handling*>(&before);
  callbacks.step = [](void* context, const strata_step_report*) {
    expect_same(handling(), *static_cast<Handling*>(context), "a step of the run");
    return 0;
  };
  ASSERT_EQ(strata_train_run(train, &callbacks, nullptr), STRATA_OK) << text();
  EXPECT_EQ(strata_train_close(train), STRATA_OK);
  expect_same(handling(), before, "run");
  EXPECT_EQ(handled, 0);
}

}  // namespace
}  // namespace strata::test
