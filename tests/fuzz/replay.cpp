// SPDX-License-Identifier: Apache-2.0
// Stands in for libFuzzer where there is none: runs a target on every file of the folders named on
// the command line, on cut and on changed copies of them. It takes seconds and always gives the
// same inputs, so that a target cannot rot and what was found once stays found. The input that a
// target dies of is left in the working directory.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/rng.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr int kChangedCopies = 100;  // of each file
constexpr size_t kCutsMax = 100;

const std::string* running = nullptr;

void on_abort(int) {
  const int file = ::open("replay-failed-input", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  constexpr std::string_view kSaid = "the input is in replay-failed-input\n";
  const bool kept = ::write(file, running->data(), running->size()) >= 0;
  if (kept && ::write(STDERR_FILENO, kSaid.data(), kSaid.size()) < 0) ::_exit(1);
}

void run(const std::string& input) {
  running = &input;
  // A copy of its own length, so that the address sanitizer sees a read beyond it.
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

// Characters with a meaning in these formats, and some without.
char odd_character(uint64_t random) {
  constexpr std::string_view kOdd = "{}[]\",:\\/#0-9e.\n\t\x01\x80\xff.tnu=";
  return kOdd[random % kOdd.size()];
}

std::string changed(std::string input, uint64_t seed) {
  const strata::Philox philox(seed);
  uint64_t drawn = 0;
  const auto random = [&] { return philox.u64(drawn++); };
  const uint64_t changes = 1 + random() % 4;
  for (uint64_t i = 0; i < changes && !input.empty(); ++i) {
    const size_t at = random() % input.size();
    switch (random() % 4) {
      case 0:
        input[at] = odd_character(random());
        break;
      case 1:
        input.insert(at, 1, odd_character(random()));
        break;
      case 2:
        input.erase(at, 1 + random() % 8);
        break;
      default:
        input.insert(random() % input.size(), input.substr(at, 1 + random() % 32));
    }
  }
  return input;
}

}  // namespace

int main(int count, char** arguments) {
  std::signal(SIGABRT, on_abort);
  std::set<std::string> paths;  // in one order on every file system
  for (int i = 1; i < count; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(arguments[i])) {
      paths.insert(entry.path().string());
    }
  }
  int64_t executions = 0;
  for (const std::string& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    run(input);
    const size_t step = 1 + input.size() / kCutsMax;
    for (size_t cut = 0; cut < input.size(); cut += step, ++executions) run(input.substr(0, cut));
    for (int i = 0; i < kChangedCopies; ++i, ++executions) {
      run(changed(input, static_cast<uint64_t>(executions)));
    }
    ++executions;
  }
  std::printf("%zu files, %lld executions\n", paths.size(), static_cast<long long>(executions));
  return paths.empty() ? 1 : 0;
}
