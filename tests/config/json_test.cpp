// SPDX-License-Identifier: Apache-2.0
// JSON values survive a round trip, and what is no good JSON is refused with its place.
#include "engine/config/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "engine/base/error.h"
#include "engine/config/json_plain.h"
#include "engine/config/json_stream.h"
#include "tests/support/seeds.h"

namespace strata::config {
namespace {

std::string json_error(std::string_view text, const JsonLimits& limits = {}) {
  try {
    Json::parse(text, "x.json", limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    return error.what();
  }
  return "";
}

TEST(Json, KeepsIntegersUnsignedAndDoublesApart) {
  const Json value = Json::parse("[1, -9223372036854775808, 18446744073709551615, 1.0, 1e9]", "x");
  EXPECT_EQ(value.items()[0].int64(), 1);
  EXPECT_EQ(value.items()[1].int64(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(value.items()[2].uint64(), std::numeric_limits<uint64_t>::max());
  EXPECT_FALSE(value.items()[2].int64().has_value());
  EXPECT_FALSE(value.items()[3].is_integer());
  EXPECT_EQ(value.items()[4].int64(), 1000000000);
}

// Of a text that is no JSON, and not of one that is refused for another reason.
TEST(Json, AdviceStandsBehindSyntaxErrors) {
  const auto json_error = [](const char* text, std::string_view advice) -> std::string {
    try {
      Json::parse(text, "x", {}, advice);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_TRUE(json_error("<html>", "fetch it").ends_with(" (fetch it)"));
  EXPECT_TRUE(json_error("<html>", "").ends_with(" (put strings in double quotes)"));
  EXPECT_EQ(json_error("{\"a\": 1, \"a\": 2}", "fetch it").find("fetch it"), std::string::npos);
  EXPECT_EQ(json_error("1e999", "fetch it").find("fetch it"), std::string::npos);
}

TEST(Json, OneTypeIsNotAnother) {
  const Json value = Json::parse(R"({"a": "1", "b": true, "c": 1.5, "d": -1})", "x");
  EXPECT_FALSE(value.find("a")->number().has_value());
  EXPECT_FALSE(value.find("b")->int64().has_value());
  EXPECT_FALSE(value.find("c")->int64().has_value());
  EXPECT_FALSE(value.find("c")->boolean().has_value());
  EXPECT_FALSE(value.find("d")->uint64().has_value());
  EXPECT_EQ(value.find("e"), nullptr);
}

TEST(Json, ObjectsKeepTheirOrder) {
  const std::string text = R"({"z": 1, "a": [], "m": {"y": null, "b": "\u00e9\n\"\\"}})";
  EXPECT_EQ(Json::parse(text, "x").dump(),
            "{\"z\": 1, \"a\": [], \"m\": {\"y\": null, \"b\": \"\xc3\xa9\\n\\\"\\\\\"}}");
}

TEST(Json, DoublesRoundTripAndStayDoubles) {
  for (const double value :
       {0.1, 1e-6, 1.0, 5e-324, 1.7976931348623157e308, -0.30000000000000004}) {
    const Json again = Json::parse(Json(value).dump(), "x");
    EXPECT_FALSE(again.is_integer());
    EXPECT_EQ(again.number(), value);
  }
  EXPECT_EQ(Json(std::nan("")).dump(), "null");
}

TEST(Json, IndentedTextReadsBack) {
  Json value;
  value.set("a", 1);
  Json list;
  list.push_back("x");
  list.push_back(false);
  value.set("b", list);
  value.set("a", 2);
  EXPECT_EQ(value.dump(2), "{\n  \"a\": 2,\n  \"b\": [\n    \"x\",\n    false\n  ]\n}");
  EXPECT_EQ(Json::parse(value.dump(2), "x").dump(), value.dump());
}

TEST(Json, BytesThatAreNoUtf8AreWrittenAsReplacementCharacters) {
  EXPECT_EQ(Json("a\xff\xed\xa0\x80z").dump(),
            "\"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\"");
}

TEST(Json, SyntaxErrorsNameLineAndColumn) {
  EXPECT_EQ(
      json_error("{\n  \"a\": 1,\n  b: 2}").find("cannot read JSON: x.json: line 3, column 3: "),
      0u);
  const auto expect = [](std::string_view text, const std::string& said) {
    EXPECT_EQ(json_error(text), "cannot read JSON: x.json: line 1, column " + said) << text;
  };
  expect("", "1: it ends before the value is complete (complete it: the file may be cut short)");
  expect("{\"a\": 1",
         "8: it ends before the value is complete (complete it: the file may be cut short)");
  expect("[1,]", "4: a value is missing (write one, or remove the comma before it)");
  expect("[1 2]", "4: a comma or ] is missing (put it there)");
  expect("{\"a\": 1 \"b\": 2}", "11: a comma or } is missing (put it there)");
  expect("{\"a\" 1}", "6: the colon after a name is missing (write \"name\": value)");
  expect("{\"a\": 1,}",
         "9: the name of a member is not in double quotes, or there is a comma too many "
         "(write \"name\": value)");
  expect("1 2", "3: there is more text after the value (remove it)");
  expect("// comment\n1", "1: JSON has no comments (remove it)");
  expect("nan",
         "2: a word is neither a string nor a number, true, false or null (put strings in double "
         "quotes)");
  expect("1e999", "5: a number is too large (write a number below 1e308)");
  expect("1.", "3: a number is not complete (write it as 12, -0.5 or 1e-5)");
  expect("\"\xff\"", "2: a byte is not UTF-8 (convert the file to UTF-8)");
  expect("\"a\nb\"",
         "3: a string has a line break or another control character in it "
         "(write \\n, \\t or \\u001f instead)");
  expect("\"a", "3: a string has no closing quote (close it)");
  expect("\"\\x\"", "3: a backslash does not begin an escape of JSON (write \\\\ for a backslash)");
  expect("\"\\ud800\"",
         "8: a \\u escape is only one half of a pair (write both halves, or the character "
         "itself)");
}

TEST(Json, ATextFromTheMiddleOfAFileNamesTheFilesLine) {
  try {
    (void)parse_json_at(7, "{\"a\":\n \"b", "x.jsonl");
    FAIL() << "it is read";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "cannot read JSON: x.jsonl: line 8, column 4: a string has no closing quote "
                 "(close it)");
  }
}

// Records are read by a parser of our own, which leaves what is rare or wrong to the library's.
TEST(Json, PlainTextsAreReadAsTheLibraryReadsThem) {
  const std::vector<JsonStream> by_library = {{"no.such.path", {}}};
  std::mt19937_64 random(20240726);
  const std::vector<std::string> parts = {"{",
                                          "}",
                                          "[",
                                          "]",
                                          ",",
                                          ":",
                                          "\"",
                                          "\"a\"",
                                          "\"b\"",
                                          "12",
                                          "-0",
                                          "0",
                                          "01",
                                          "-7",
                                          "1.5",
                                          "1e3",
                                          "2E-400",
                                          "1e999",
                                          "-1.25e+2",
                                          "true",
                                          "false",
                                          "null",
                                          "nul",
                                          " ",
                                          "\n",
                                          "\t",
                                          "\\",
                                          "\\n",
                                          "\\u0041",
                                          "\\ud83d",
                                          "\\udc4d",
                                          "\\u00",
                                          "\xc3\xa9",
                                          "\xff",
                                          "\xe6\x97\xa5",
                                          "\x01",
                                          "\x7f",
                                          "\xed\xa0\x80",
                                          "longer text without end ",
                                          "9223372036854775807",
                                          "18446744073709551615",
                                          "123456789012345678",
                                          "\"key\": ",
                                          "\"key\": {",
                                          "],"};
  uint64_t accepted = 0;
  const uint64_t tried = strata::test::seeds(200000);
  for (uint64_t k = 0; k < tried; ++k) {
    std::string text = random() % 2 == 0 ? "{\"x\": [" : "";
    for (uint64_t n = random() % 12; n > 0; --n) text += parts[random() % parts.size()];
    if (text.starts_with('{')) text += random() % 2 == 0 ? "]}" : "\"]}";
    std::string slow;
    try {
      slow = parse_json(text, "x", {}, "", by_library).dump();
      ++accepted;
    } catch (const Error& error) {
      slow = error.what();
    }
    std::string quick;
    try {
      quick = Json::parse(text, "x").dump();
    } catch (const Error& error) {
      quick = error.what();
    }
    ASSERT_EQ(quick, slow) << text;
  }
  EXPECT_GT(accepted, tried / 40);
}

TEST(Json, PlainTextsAreReadWithoutTheLibrary) {
  const JsonLimits limits = {.bytes = 1000, .values = 4, .depth = 2};
  EXPECT_EQ(read_plain_json(R"({"a": ["\u00e9\ud83d\udc4d", -1.5e0]})", limits)->dump(),
            "{\"a\": [\"\xc3\xa9\xf0\x9f\x91\x8d\", -1.5]}");
  EXPECT_FALSE(read_plain_json("[1, 2, 3, 4]", limits)) << "too many values";
  EXPECT_FALSE(read_plain_json("[[[]]]", limits)) << "too deep";
  EXPECT_FALSE(read_plain_json(R"({"a": 1, "a": 2})", limits));
  EXPECT_FALSE(read_plain_json("[1] 2", limits));
}

TEST(Json, DuplicateMembersAreRefused) {
  EXPECT_EQ(
      json_error("{\"a\": 1,\n \"a\": 2}"),
      "cannot read JSON: x.json: line 2, column 5: duplicate member \"a\" (correct it there)");
  EXPECT_EQ(json_error(R"([{"a": 1}, {"a": {"a": 2}}])"), "");
}

TEST(Json, LimitsOfDepthValuesAndBytesHold) {
  EXPECT_EQ(json_error(std::string(64, '[') + std::string(64, ']')), "");
  EXPECT_NE(json_error(std::string(65, '[') + std::string(65, ']')).find("deeper than 64"),
            std::string::npos);
  EXPECT_NE(json_error("[1,2,3]", {.values = 3}).find("more than 3 values"), std::string::npos);
  EXPECT_EQ(json_error("[1,2,3]", {.values = 4}), "");
  EXPECT_NE(json_error("[1,2,3]", {.bytes = 6}).find("limit of 6 B"), std::string::npos);
}

TEST(Json, MissingFilesAndDirectoriesAreErrors) {
  EXPECT_THROW(Json::read_file("/proc/nonexistent/config.json"), Error);
  EXPECT_THROW(Json::read_file("/"), Error);
}

}  // namespace
}  // namespace strata::config
