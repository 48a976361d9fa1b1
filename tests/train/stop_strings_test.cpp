// SPDX-License-Identifier: Apache-2.0
// A text ends before the first stop string, however it is divided into pieces, and only what may be
// the beginning of one is held back.
#include "engine/text/stop_strings.h"

#include <gtest/gtest.h>

namespace strata::text {
namespace {

struct Shown {
  std::string text;
  bool is_found;
};

Shown shown(const std::vector<std::string>& strings, std::string_view text, size_t piece_bytes) {
  StopStrings stop(strings);
  Shown result = {};
  for (size_t at = 0; at < text.size(); at += piece_bytes) {
    result.text += stop.push(text.substr(at, piece_bytes));
  }
  result.is_found = stop.is_found();
  result.text += stop.finish();
  return result;
}

TEST(StopStrings, TheFirstOneEndsTheText) {
  for (const size_t bytes : {1, 2, 3, 100}) {
    const Shown result = shown({"\nUser:", "END"}, "so it was.\nUser: END", bytes);
    EXPECT_EQ(result.text, "so it was.") << bytes;
    EXPECT_TRUE(result.is_found);
  }
}

TEST(StopStrings, WhatOnlyBeginsLikeOneIsShownInTheEnd) {
  for (const size_t bytes : {1, 2, 100}) {
    const Shown result = shown({"aab", "cd"}, "xaaaac", bytes);
    EXPECT_EQ(result.text, "xaaaac") << bytes;
    EXPECT_FALSE(result.is_found);
  }
  EXPECT_EQ(shown({"aab"}, "aaab", 1).text, "a");
}

TEST(StopStrings, NoMoreIsHeldBackThanAStopStringBeginsWith) {
  StopStrings stop({"stop"});
  EXPECT_EQ(stop.push("non"), "non");
  EXPECT_EQ(stop.push("st"), "");
  EXPECT_EQ(stop.push("e"), "ste");
  EXPECT_EQ(stop.push("sst"), "s");
  EXPECT_EQ(stop.push("op, and more"), "");
  EXPECT_TRUE(stop.is_found());
  EXPECT_EQ(stop.push("later"), "");
  EXPECT_EQ(stop.finish(), "");
}

TEST(StopStrings, WithoutAnyEverythingIsShownAtOnce) {
  StopStrings stop({});
  EXPECT_EQ(stop.push("text"), "text");
  EXPECT_FALSE(stop.is_found());
}

}  // namespace
}  // namespace strata::text
