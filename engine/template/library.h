// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/template/value.h"

namespace strata::templates {

class Renderer;

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> keywords;
};

// One call of a function of ours.
struct Call {
  Renderer& renderer;
  Value self;                    // of a method, filter or test; undefined for a function
  std::array<Value, 6> given{};  // by `Native::parameters`; those left out are missing
  const Arguments& all;

  bool has(size_t k) const { return !given[k].is_missing(); }
};

// A filter, test, method or function. `parameters` are names separated by spaces; one that ends in
// "?" may be left out, and "*" takes what there is, in Call::all. Behind "/" no argument has a
// name. `run` is null for what Python or jinja2 have and this library has not.
struct Native {
  std::string_view name;
  std::string_view parameters;
  Value (*run)(const Call& call);
};

// Null when jinja2 has no such filter or test.
const Native* find_filter(std::string_view name);
const Native* find_test(std::string_view name);
const Native* find_function(std::string_view name);
// Null when values of this kind have no such method, or when the sandbox hides it because it
// changes its object.
const Native* find_method(const Value& object, std::string_view name);

// Python's `format % arguments`, and str.format().
Value format_by_percent(Renderer& renderer, const Value& format, const Value& arguments);
Value format_by_braces(Renderer& renderer, const Value& format, const Arguments& arguments);

// The tables behind these functions.
struct NativeTable {
  const Native* begin;
  size_t size;
};
NativeTable filters_of_text();
NativeTable filters_of_sequences();

}  // namespace strata::templates
