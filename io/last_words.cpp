// SPDX-License-Identifier: Apache-2.0
#include "io/last_words.h"

#include <atomic>

namespace strata::io {
namespace {

std::atomic<LastWords> last_words{nullptr};
std::atomic<bool> impatient{false};

}  // namespace

void set_last_words(LastWords words) {
  last_words = words;
}

int say_last_words(int code) {
  const LastWords words = last_words.exchange(nullptr);
  return words == nullptr ? code : words(code);
}

void close_without_patience() {
  impatient = true;
}

bool closes_without_patience() {
  return impatient;
}

}  // namespace strata::io
