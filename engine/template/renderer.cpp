// SPDX-License-Identifier: Apache-2.0
// The statements of templates. Expressions are in renderer_expressions.cpp, calls in
// renderer_calls.cpp, operators in operators.cpp, attributes and items in access.cpp.
#include "engine/template/renderer.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/check.h"
#include "engine/template/renderer_scopes.h"

namespace strata::templates {

Renderer::Renderer(const Syntax& syntax, const TemplateSettings& settings)
    : syntax_(syntax),
      settings_(settings),
      heap_(settings.limits.memory_bytes),
      scope_(&globals_),
      out_(&result_.text) {
  for (const std::string_view name : {"range", "dict", "namespace", "raise_exception",
                                      "strftime_now", "joiner", "cycler", "lipsum"}) {
    if (syntax.symbols.find(name) < 0) continue;
    const Native* native = find_function(name);
    STRATA_CHECK(native != nullptr);
    define(name, heap_.function({.name = native->name, .native = native}));
  }
}

void Renderer::define(std::string_view name, const Value& value) {
  const int symbol = syntax_.symbols.find(name);
  if (symbol < 0) return;
  Scope* inner = std::exchange(scope_, &globals_);
  set(symbol, value);
  scope_ = inner;
}

RenderedChat Renderer::run() {
  const NewScope root(*this, &globals_);
  run_all(syntax_.body);
  return std::move(result_);
}

void Renderer::fail(const std::string& cause, const std::string& advice) {
  throw RenderFault{cause, advice};
}

void Renderer::fail_for_memory(const std::string& cause) {
  throw RenderFault{cause, "", true};
}

void Renderer::charge(size_t steps) {
  steps_ += steps;
  if (steps_ > settings_.limits.steps) {
    fail(fmt::format("it takes more than {} steps", settings_.limits.steps));
  }
}

void Renderer::write(std::string_view text) {
  charge(text.size() / 64);
  if (out_ == &result_.text) {
    if (text.size() > settings_.limits.output_bytes - out_->size()) {
      fail_for_memory(
          fmt::format("the text has more than {} bytes", settings_.limits.output_bytes));
    }
  } else {
    captured_bytes_ += text.size();
    if (captured_bytes_ > settings_.limits.memory_bytes)
      fail_for_memory("it captures too much text");
  }
  out_->append(text);
}

void Renderer::write(const Value& value) {
  if (value.is_string()) return write(value.string());
  if (!value.is_undefined()) write(text_of(value));
}

Renderer::Flow Renderer::run_all(const std::vector<const Node*>& body) {
  for (const Node* node : body) {
    const Flow flow = run(*node);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Renderer::Flow Renderer::run(const Node& node) {
  const Level level(*this, node);
  switch (node.kind) {
    case NodeKind::kData:
      write(std::string_view(node.text));
      return Flow::kNext;
    case NodeKind::kOutput: {
      const Value value = evaluate(*node.items[0]);
      current_ = node.items[0];
      write(value);
      return Flow::kNext;
    }
    case NodeKind::kIf:
      return run_all(is_true(evaluate(*node.items[0])) ? node.body : node.otherwise);
    case NodeKind::kFor:
      return run_for(node);
    case NodeKind::kSet:
      run_set(node);
      return Flow::kNext;
    case NodeKind::kSetBlock:
      return run_set_block(node);
    case NodeKind::kMacro:
      set(node.symbol, macro_of(node));
      return Flow::kNext;
    case NodeKind::kCallBlock:
      run_call_block(node);
      return Flow::kNext;
    case NodeKind::kFilterBlock:
      return run_filter_block(node);
    case NodeKind::kWith:
      return run_with(node);
    case NodeKind::kGeneration:
      run_generation(node);
      return Flow::kNext;
    case NodeKind::kBreak:
      return Flow::kBreak;
    case NodeKind::kContinue:
      return Flow::kContinue;
    default:
      STRATA_CHECK(false && "an expression is no statement");
  }
  return Flow::kNext;
}

Renderer::Flow Renderer::run_for(const Node& node) {
  const Value list = evaluate(*node.items[1]);
  current_ = node.items[1];
  const Items items = items_of(list);
  Flow flow = Flow::kNext;
  if (run_loop(node, items, 1, flow)) return Flow::kNext;
  const NewScope scope(*this, scope_);
  return run_all(node.otherwise);
}

bool Renderer::run_loop(const Node& node, const Items& items, size_t depth, Flow& flow) {
  std::vector<Value> passed;
  Items left = items;
  const Node* filter = node.items[2];
  const auto passes = [&](const Value& item) {
    const NewScope scope(*this, scope_);
    assign(*node.items[0], item);
    return is_true(evaluate(*filter));
  };
  // jinja2 filters as it goes along, unless `loop` has to know what comes.
  if (filter != nullptr && node.uses_loop) {
    for (size_t k = 0; k < items.size; ++k) {
      if (passes(items.items[k])) passed.push_back(items.items[k]);
    }
    const Sequence& kept = *list(passed).sequence;
    left = {kept.items, kept.size};
    filter = nullptr;
  }
  Loop* loop = nullptr;
  const int loop_symbol = syntax_.symbols.find("loop");
  if (node.uses_loop) {
    loop = heap_.loop({.items = left.items,
                       .size = left.size,
                       .depth = depth,
                       .node = node.is_recursive ? &node : nullptr,
                       .scope = scope_});
    if (node.is_recursive) scope_->is_kept = true;
  }
  bool any = false;
  for (size_t k = 0; k < left.size; ++k) {
    if (filter != nullptr && !passes(left.items[k])) continue;
    any = true;
    charge(1);
    const NewScope scope(*this, scope_);
    if (loop != nullptr) {
      loop->index = k;
      set(loop_symbol, Value::of(static_cast<const Loop*>(loop)));
    }
    assign(*node.items[0], left.items[k]);
    flow = run_all(node.body);
    if (flow == Flow::kBreak) break;
  }
  return any;
}

void Renderer::set(int symbol, const Value& value) {
  for (auto& [known, old] : scope_->names) {
    if (known == symbol) {
      old = value;
      return;
    }
  }
  heap_.charge(scope_->is_kept ? sizeof(value) : 0);
  scope_->names.emplace_back(symbol, value);
}

void Renderer::assign(const Node& target, const Value& value) {
  if (target.kind == NodeKind::kName) return set(target.symbol, value);
  current_ = &target;
  if (target.kind == NodeKind::kMemberSlot) {
    const Value object = evaluate_name(target);
    if (object.kind != Kind::kNamespace) {
      fail(fmt::format("a member of a {} is set, which only a namespace allows", type_of(object)));
    }
    if (target.text.starts_with('_')) fail("a member of a namespace begins with an underscore");
    for (auto& [name, old] : object.name_space->members) {
      if (name == target.text) {
        old = value;
        return;
      }
    }
    heap_.charge(sizeof(value) + sizeof(std::string_view));
    object.name_space->members.emplace_back(target.text, value);
    return;
  }
  const Items items = items_of(value);
  if (items.size != target.items.size()) {
    fail(fmt::format("{} values are unpacked into {} names", items.size, target.items.size()));
  }
  for (size_t k = 0; k < items.size; ++k) assign(*target.items[k], items.items[k]);
}

void Renderer::run_set(const Node& node) {
  assign(*node.items[0], evaluate(*node.items[1]));
}

Renderer::Flow Renderer::run_captured(const Node& node, Value& text) {
  const NewScope scope(*this, scope_);
  Capture capture(*this);
  const Flow flow = run_all(node.body);
  if (flow == Flow::kNext) text = capture.take();
  return flow;
}

Renderer::Flow Renderer::run_set_block(const Node& node) {
  Value value;
  if (const Flow flow = run_captured(node, value); flow != Flow::kNext) return flow;
  if (node.items[1] != nullptr) value = evaluate_filter(*node.items[1], &value);
  assign(*node.items[0], value);
  return Flow::kNext;
}

Value Renderer::macro_of(const Node& node) {
  for (Scope* scope = scope_; scope != nullptr && !scope->is_kept; scope = scope->parent) {
    heap_.charge(sizeof(Scope) + scope->names.size() * sizeof(Value));
    scope->is_kept = true;
  }
  return heap_.function({.name = node.text, .macro = &node, .scope = scope_});
}

void Renderer::run_call_block(const Node& node) {
  const Value caller = macro_of(*node.items[0]);
  const Node& call_node = *node.items[1];
  const Value callee = evaluate(*call_node.items[0]);
  Arguments arguments;
  fill(*call_node.arguments, arguments);
  arguments.keywords.emplace_back("caller", caller);
  current_ = &call_node;
  write(call(callee, arguments));
}

Renderer::Flow Renderer::run_filter_block(const Node& node) {
  Value value;
  if (const Flow flow = run_captured(node, value); flow != Flow::kNext) return flow;
  write(evaluate_filter(*node.items[0], &value));
  return Flow::kNext;
}

Renderer::Flow Renderer::run_with(const Node& node) {
  std::vector<Value> values;
  for (size_t k = 1; k < node.items.size(); k += 2) values.push_back(evaluate(*node.items[k]));
  const NewScope scope(*this, scope_);
  for (size_t k = 0; k < values.size(); ++k) assign(*node.items[2 * k], values[k]);
  return run_all(node.body);
}

void Renderer::run_generation(const Node& node) {
  const NewScope scope(*this, scope_);
  if (out_ != &result_.text) {
    result_.has_lost_blocks = true;
    run_all(node.body);
    return;
  }
  if (is_generating_) {  // the outer block has all of its text
    run_all(node.body);
    return;
  }
  const size_t begin = out_->size();
  is_generating_ = true;
  run_all(node.body);
  is_generating_ = false;
  if (result_.generated.size() * sizeof(ByteRange) >= settings_.limits.output_bytes) {
    fail("it has too many generation blocks");
  }
  result_.generated.push_back({begin, out_->size()});
}

}  // namespace strata::templates
