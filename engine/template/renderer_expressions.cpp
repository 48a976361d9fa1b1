// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "engine/base/check.h"
#include "engine/template/renderer.h"
#include "engine/template/renderer_scopes.h"

namespace strata::templates {

Value Renderer::evaluate(const Node& node) {
  const Level level(*this, node);
  switch (node.kind) {
    case NodeKind::kConstant:
      return node.value;
    case NodeKind::kName:
      return evaluate_name(node);
    case NodeKind::kList:
    case NodeKind::kTuple:
      return evaluate_list(node);
    case NodeKind::kDict:
      return evaluate_dict(node);
    case NodeKind::kAttribute:
      return evaluate_attribute(node);
    case NodeKind::kItem: {
      const Value object = evaluate(*node.items[0]);
      const Value key = evaluate(*node.items[1]);
      current_ = &node;
      return item_of(object, key);
    }
    case NodeKind::kSlice:
      return evaluate_slice(node);
    case NodeKind::kCall:
      return evaluate_call(node);
    case NodeKind::kFilter:
      return evaluate_filter(node);
    case NodeKind::kTest:
      return evaluate_test(node);
    case NodeKind::kNegate:
    case NodeKind::kPlus: {
      const Value value = evaluate(*node.items[0]);
      current_ = &node;
      const Value negated = negate(value);
      return node.kind == NodeKind::kNegate ? negated : negate(negated);
    }
    case NodeKind::kNot:
      return Value::of(!is_true(evaluate(*node.items[0])));
    case NodeKind::kAnd:
    case NodeKind::kOr: {
      Value value;
      for (const Node* item : node.items) {
        value = evaluate(*item);
        if (is_true(value) == (node.kind == NodeKind::kOr)) break;
      }
      return value;
    }
    case NodeKind::kConcatenate:
      return evaluate_concatenation(node);
    case NodeKind::kArithmetic: {
      const Value left = evaluate(*node.items[0]);
      const Value right = evaluate(*node.items[1]);
      current_ = &node;
      return arithmetic(left, node.text, right);
    }
    case NodeKind::kCompare:
      return evaluate_compare(node);
    case NodeKind::kChoice:
      if (is_true(evaluate(*node.items[0]))) return evaluate(*node.items[1]);
      return node.items[2] == nullptr ? Value::undefined("the value of an `if` without `else`")
                                      : evaluate(*node.items[2]);
    default:
      STRATA_CHECK(false && "a statement is no expression");
  }
  return {};
}

Value Renderer::evaluate_name(const Node& node) {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    for (const auto& [symbol, value] : scope->names) {
      if (symbol == node.symbol) return value;
    }
  }
  return Value::undefined(syntax_.symbols.name(node.symbol));
}

Value Renderer::evaluate_list(const Node& node) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const Node* item : node.items) items.push_back(evaluate(*item));
  current_ = &node;
  return heap_.sequence(node.kind == NodeKind::kList ? SequenceKind::kList : SequenceKind::kTuple,
                        items);
}

Value Renderer::evaluate_dict(const Node& node) {
  std::vector<Entry> entries;
  for (size_t k = 0; k < node.items.size(); k += 2) {
    const Value key = evaluate(*node.items[k]);
    entries.push_back({key, evaluate(*node.items[k + 1])});
    current_ = &node;
    require_hashable(key);
  }
  charge(entries.size() * entries.size() / 8);
  return heap_.dict(entries);
}

Value Renderer::evaluate_attribute(const Node& node) {
  const Value object = evaluate(*node.items[0]);
  current_ = &node;
  return attribute_of(object, node.text);
}

Value Renderer::evaluate_slice(const Node& node) {
  const Value object = evaluate(*node.items[0]);
  Value bounds[3];
  for (size_t k = 0; k < 3; ++k) {
    bounds[k] = node.items[k + 1] == nullptr ? Value::none() : evaluate(*node.items[k + 1]);
  }
  current_ = &node;
  return slice(object, bounds[0], bounds[1], bounds[2]);
}

void Renderer::fill(const CallArguments& nodes, Arguments& arguments) {
  arguments.positional.reserve(nodes.positional.size());
  for (const Node* node : nodes.positional) arguments.positional.push_back(evaluate(*node));
  for (const auto& [name, node] : nodes.keywords) {
    arguments.keywords.emplace_back(name, evaluate(*node));
  }
  if (nodes.list != nullptr) {
    const Items items = items_of(evaluate(*nodes.list));
    arguments.positional.insert(arguments.positional.end(), items.items, items.items + items.size);
  }
  if (nodes.dict == nullptr) return;
  const Value dict = evaluate(*nodes.dict);
  if (!dict.is_dict()) fail(fmt::format("** stands before a {}; it needs a dict", type_of(dict)));
  for (size_t k = 0; k < dict.dict->size; ++k) {
    const Entry& entry = dict.dict->entries[k];
    if (!entry.key.is_string()) fail("an argument has a name that is not a string");
    arguments.keywords.emplace_back(entry.key.string(), entry.value);
  }
}

Value Renderer::evaluate_call(const Node& node) {
  const Node& callee_node = *node.items[0];
  Arguments arguments;
  if (callee_node.kind == NodeKind::kAttribute) {  // a method is called without an object for it
    const Value object = evaluate(*callee_node.items[0]);
    current_ = &callee_node;
    const Native* method = find_method(object, callee_node.text);
    if (method != nullptr && method->run != nullptr) {
      fill(*node.arguments, arguments);
      current_ = &node;
      return call(*method, object, arguments);
    }
    const Value callee = attribute_of(object, callee_node.text);
    fill(*node.arguments, arguments);
    current_ = &node;
    return call(callee, arguments);
  }
  const Value callee = evaluate(callee_node);
  fill(*node.arguments, arguments);
  current_ = &node;
  return call(callee, arguments);
}

Value Renderer::evaluate_filter(const Node& node, const Value* object) {
  // Of a chain without an object, the first filter gets the block's text.
  const bool is_chain = object != nullptr && node.items[0] != nullptr;
  const Value value = is_chain                   ? evaluate_filter(*node.items[0], object)
                      : node.items[0] == nullptr ? *object
                                                 : evaluate(*node.items[0]);
  Arguments arguments;
  fill(*node.arguments, arguments);
  current_ = &node;
  if (node.native == nullptr) {
    fail(fmt::format("there is no filter {}", node.text), "correct the template");
  }
  return call(*node.native, value, arguments);
}

Value Renderer::evaluate_test(const Node& node) {
  const Value value = evaluate(*node.items[0]);
  Arguments arguments;
  fill(*node.arguments, arguments);
  current_ = &node;
  if (node.native == nullptr) {
    fail(fmt::format("there is no test {}", node.text), "correct the template");
  }
  return call(*node.native, value, arguments);
}

Value Renderer::evaluate_concatenation(const Node& node) {
  std::string text;
  for (const Node* item : node.items) {
    const Value value = evaluate(*item);
    current_ = &node;
    text += text_of(value);
    require_room(text);
  }
  return string(text);
}

Value Renderer::evaluate_compare(const Node& node) {
  Value left = evaluate(*node.items[0]);
  for (size_t k = 0; k < node.names.size(); ++k) {
    const Value right = evaluate(*node.items[k + 1]);
    current_ = &node;
    if (!compare(left, node.names[k], right)) return Value::of(false);
    left = right;
  }
  return Value::of(true);
}

}  // namespace strata::templates
