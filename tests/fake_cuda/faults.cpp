// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/faults.h"

#include <sstream>
#include <stdexcept>

namespace fake_cuda {
namespace {

const std::map<std::string, int64_t> kSettings = {
    {"devices", 1},  {"driver", 1},  {"memory", int64_t{8} << 30},
    {"delay_us", 0}, {"seed", 1},    {"pageable", 1},
    {"nccl", 22803}, {"unified", 0}, {"cudnn", 91900},
    {"graph", 1},    {"compute", 90}};
constexpr const char* kFaults[] = {
    "malloc",  "register",  "launch", "kernel", "hang", "copy",   "copying",    "lost",
    "product", "algorithm", "graph",  "fused",  "nccl", "absent", "exchanging", "stuck"};

bool is_fault(const std::string& name) {
  for (const char* fault : kFaults) {
    if (name == fault) return true;
  }
  return false;
}

}  // namespace

void Faults::configure(const std::string& text) {
  const std::lock_guard lock(mu_);
  settings_ = kSettings;
  fails_at_.clear();
  happened_.clear();
  calls_.clear();
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t sign = word.find_first_of("=@");
    const std::string name = word.substr(0, sign);
    const bool known =
        sign != word.npos && (word[sign] == '@' ? is_fault(name) : kSettings.count(name) > 0);
    if (!known) throw std::invalid_argument("fake CUDA: unknown word " + word);
    const int64_t value = std::stoll(word.substr(sign + 1));
    (word[sign] == '@' ? fails_at_ : settings_)[name] = value;
  }
}

int64_t Faults::setting(const std::string& name) const {
  const std::lock_guard lock(mu_);
  return settings_.at(name);
}

bool Faults::fails(const std::string& name) {
  const std::lock_guard lock(mu_);
  const int64_t count = ++happened_[name];
  const auto at = fails_at_.find(name);
  return at != fails_at_.end() && at->second == count;
}

void Faults::count_call(const char* name) {
  const std::lock_guard lock(mu_);
  ++calls_[name];
}

int64_t Faults::calls(const std::string& name) const {
  const std::lock_guard lock(mu_);
  const auto found = calls_.find(name);
  return found == calls_.end() ? 0 : found->second;
}

}  // namespace fake_cuda
