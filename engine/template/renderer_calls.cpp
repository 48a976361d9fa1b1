// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "engine/template/renderer.h"
#include "engine/template/renderer_scopes.h"

namespace strata::templates {
namespace {

// Gives arguments to parameters by position and by name.
class Binder {
 public:
  Binder(const Native& native, const Arguments& arguments, std::array<Value, 6>& given)
      : native_(native), arguments_(arguments), given_(given) {}

  void run() {
    given_.fill(Value::missing());
    size_t count = 0;
    std::string_view left = native_.parameters;
    while (!left.empty()) {
      const size_t end = std::min(left.find(' '), left.size());
      const std::string_view one = left.substr(0, end);
      left.remove_prefix(std::min(end + 1, left.size()));
      if (one == "*") return;
      if (one == "/") {
        has_names_ = false;
      } else {
        bind(count++, one);
      }
    }
    const size_t positional = arguments_.positional.size();
    if (positional > count) {
      Renderer::fail(fmt::format("{} takes {} arguments, not {}", native_.name, count, positional));
    }
    if (used_ == arguments_.keywords.size()) return;
    for (const auto& [name, value] : arguments_.keywords) {
      if (!has_names_ || native_.parameters.find(name) == std::string_view::npos) {
        Renderer::fail(fmt::format("{} has no parameter {}", native_.name, name));
      }
    }
    Renderer::fail(fmt::format("{} gets an argument twice", native_.name));
  }

 private:
  void bind(size_t k, std::string_view parameter) {
    const bool is_optional = parameter.ends_with('?');
    if (is_optional) parameter.remove_suffix(1);
    if (k < arguments_.positional.size()) {
      given_[k] = arguments_.positional[k];
      return;
    }
    for (const auto& [name, value] : arguments_.keywords) {
      if (!has_names_ || name != parameter) continue;
      given_[k] = value;
      ++used_;
      return;
    }
    if (!is_optional) {
      Renderer::fail(fmt::format("{} lacks its argument {}", native_.name, parameter));
    }
  }

  const Native& native_;
  const Arguments& arguments_;
  std::array<Value, 6>& given_;
  size_t used_ = 0;  // keywords
  bool has_names_ = true;
};

}  // namespace

Value Renderer::call(const Native& native, const Value& self, const Arguments& arguments) {
  if (native.run == nullptr) {
    fail(fmt::format("{} is not supported", native.name),
         "write the template without it, or choose another template");
  }
  charge(1 + (self.is_string()               ? self.size / 256
              : self.kind == Kind::kSequence ? self.sequence->size / 16
                                             : 0));
  Call call{*this, self, {}, arguments};
  Binder(native, arguments, call.given).run();
  return native.run(call);
}

Value Renderer::call(const Value& callee, const Arguments& arguments) {
  if (callee.kind == Kind::kLoop && callee.loop->node != nullptr) {
    return call_loop(*callee.loop, arguments);
  }
  if (callee.is_undefined()) {
    fail(fmt::format("{} is not defined, or the sandbox forbids it", callee.string()));
  }
  if (callee.kind != Kind::kFunction) fail(fmt::format("a {} is not a function", type_of(callee)));
  const Function& function = *callee.function;
  if (function.macro != nullptr) return call_macro(function, arguments);
  return call(*function.native, function.self, arguments);
}

Value Renderer::call_macro(const Function& function, const Arguments& arguments) {
  const Node& macro = *function.macro;
  const Level level(*this, *current_);
  const NewScope scope(*this, function.scope);
  const size_t count = macro.symbols.size();
  std::vector<Value> rest;
  for (size_t k = 0; k < arguments.positional.size(); ++k) {
    if (k < count) {
      set(macro.symbols[k], arguments.positional[k]);
    } else if (macro.uses_rest) {
      rest.push_back(arguments.positional[k]);
    } else {
      fail(fmt::format("the macro {} takes {} arguments, not {}", macro.text, count,
                       arguments.positional.size()));
    }
  }
  std::vector<bool> given(count);
  std::fill_n(given.begin(), std::min(count, arguments.positional.size()), true);
  std::vector<Entry> keywords;
  Value caller = Value::undefined("caller");
  for (const auto& [name, value] : arguments.keywords) {
    const int symbol = syntax_.symbols.find(name);
    const auto found = std::find(macro.symbols.begin(), macro.symbols.end(), symbol);
    if (symbol >= 0 && found != macro.symbols.end()) {
      const auto k = static_cast<size_t>(found - macro.symbols.begin());
      if (given[k]) fail(fmt::format("the macro {} gets {} twice", macro.text, name));
      given[k] = true;
      set(symbol, value);
    } else if (name == "caller" && macro.uses_caller) {
      caller = value;
    } else if (macro.uses_keywords) {
      keywords.push_back({Value::of(name), value});
    } else {
      fail(fmt::format("the macro {} has no parameter {}", macro.text, name));
    }
  }
  for (size_t k = 0; k < count; ++k) {
    if (given[k]) continue;
    set(macro.symbols[k], macro.items[k] != nullptr
                              ? evaluate(*macro.items[k])
                              : Value::undefined(syntax_.symbols.name(macro.symbols[k])));
  }
  if (macro.uses_caller && syntax_.symbols.find("caller") >= 0) {
    const int symbol = syntax_.symbols.find("caller");
    if (std::find(macro.symbols.begin(), macro.symbols.end(), symbol) == macro.symbols.end()) {
      set(symbol, caller);
    }
  }
  if (macro.uses_rest) {
    set(syntax_.symbols.find("varargs"), heap_.sequence(SequenceKind::kTuple, rest));
  }
  if (macro.uses_keywords) set(syntax_.symbols.find("kwargs"), heap_.dict(keywords));
  Capture capture(*this);
  run_all(macro.body);
  return capture.take();
}

Value Renderer::call_loop(const Loop& loop, const Arguments& arguments) {
  if (arguments.positional.size() != 1) fail("`loop` takes one list");
  const Level level(*this, *current_);
  const Items items = items_of(arguments.positional[0]);
  const Node& node = *loop.node;
  Scope* outer = std::exchange(scope_, loop.scope);
  Value text;
  {
    Capture capture(*this);
    Flow flow = Flow::kNext;
    if (!run_loop(node, items, loop.depth + 1, flow)) {
      const NewScope scope(*this, scope_);
      run_all(node.otherwise);
    }
    text = capture.take();
  }
  scope_ = outer;
  return text;
}

}  // namespace strata::templates
