// SPDX-License-Identifier: Apache-2.0
#include "engine/model/name_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "engine/base/error.h"

namespace strata::model {
namespace {

// Far more steps than a sensible pattern needs for a name; they take a few milliseconds.
constexpr uint32_t kMatchLimit = 100'000;

std::string message_of(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR units(const std::string& text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

}  // namespace

struct NamePattern::Compiled {
  template <auto* Free>
  struct Freed {
    template <typename T>
    void operator()(T* held) const {
      Free(held);
    }
  };
  std::unique_ptr<pcre2_code, Freed<pcre2_code_free>> code;
  std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>> match;
  std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>> context;
};

NamePattern::NamePattern(std::string option, std::string pattern)
    : option_(std::move(option)),
      pattern_(std::move(pattern)),
      compiled_(std::make_unique<Compiled>()) {
  int error = 0;
  size_t at = 0;
  compiled_->code.reset(pcre2_compile(units(pattern_), pattern_.size(),
                                      PCRE2_ANCHORED | PCRE2_ENDANCHORED, &error, &at, nullptr));
  if (!compiled_->code) {
    refuse(fmt::format(
        "it is not a regular expression: {} (correct it at character {}; in \".*embed.*\" the . is "
        "any character and the * repeats it)",
        message_of(error), at));
  }
  compiled_->match.reset(pcre2_match_data_create(1, nullptr));
  compiled_->context.reset(pcre2_match_context_create(nullptr));
  if (!compiled_->match || !compiled_->context) throw std::bad_alloc();
  pcre2_set_match_limit(compiled_->context.get(), kMatchLimit);
}

NamePattern::~NamePattern() = default;

bool NamePattern::matches(const Parameter& parameter) const {
  return matches(parameter.name) || matches(parameter.stored.tensor);
}

bool NamePattern::matches(const std::string& name) const {
  const int found = pcre2_match(compiled_->code.get(), units(name), name.size(), 0, 0,
                                compiled_->match.get(), compiled_->context.get());
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) {
    refuse(fmt::format("cannot be matched with \"{}\": {} (write it without nested repeats)", name,
                       message_of(found)));
  }
  return true;
}

void NamePattern::refuse(const std::string& cause) const {
  throw Error(ErrorCode::kConfig, option_ + ": \"" + pattern_ + "\": " + cause);
}

}  // namespace strata::model
