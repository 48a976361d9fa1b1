// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdlib>

#include "engine/template/library.h"
#include "engine/template/parser.h"

namespace strata::templates {

const Node* Parser::parse_one_target(bool with_member) {
  const Node* target = nullptr;
  if (skip_operator("(")) {
    target = parse_target(with_member, ")");
    expect_operator(")");
    return target;
  }
  Node* node = start(NodeKind::kName);
  const std::string name = expect_name();
  node->symbol = syntax_.symbols.of(name);
  if (with_member && skip_operator(".")) {
    node->kind = NodeKind::kMemberSlot;
    node->text = expect_name();
  } else if (name == "true" || name == "false" || name == "none" || name == "True" ||
             name == "False" || name == "None") {
    fail(name + " cannot be set");
  }
  return finish(node);
}

const Node* Parser::parse_target(bool with_member, std::string_view end) {
  const Level level(*this);
  const Node* first = parse_one_target(with_member);
  if (!is_operator(",")) return first;
  Node* node = start(NodeKind::kTuple, first);
  while (skip_operator(",")) {
    if (is_tuple_end(end) || is_operator("=")) break;
    node->items.push_back(parse_one_target(with_member));
  }
  return finish(node);
}

bool Parser::is_tuple_end(std::string_view end) const {
  return current_->kind == TokenKind::kVariableEnd || current_->kind == TokenKind::kBlockEnd ||
         is_operator(")") || (!end.empty() && is_name(end));
}

const Node* Parser::parse_tuple(bool with_choice, bool in_parentheses, std::string_view end) {
  Node* node = nullptr;
  if (is_tuple_end(end)) {
    if (!in_parentheses) fail("expected an expression, not " + describe_current());
    return finish(start(NodeKind::kTuple));
  }
  const auto parse_one = [&] { return with_choice ? parse_expression() : parse_or(); };
  const Node* first = parse_one();
  if (!is_operator(",")) return first;
  node = start(NodeKind::kTuple, first);
  while (skip_operator(",")) {
    if (is_tuple_end(end)) break;
    node->items.push_back(parse_one());
  }
  return finish(node);
}

const Node* Parser::parse_expression() {
  const Level level(*this);
  const Node* value = parse_or();
  while (skip_name("if")) {
    Node* node = start(NodeKind::kChoice, value);
    node->items.insert(node->items.begin(), parse_or());
    node->items.push_back(skip_name("else") ? parse_expression() : nullptr);
    value = finish(node);
  }
  return value;
}

const Node* Parser::parse_or() {
  const Node* first = parse_and();
  if (!is_name("or")) return first;
  Node* node = start(NodeKind::kOr, first);
  while (skip_name("or")) node->items.push_back(parse_and());
  return finish(node);
}

const Node* Parser::parse_and() {
  const Node* first = parse_not();
  if (!is_name("and")) return first;
  Node* node = start(NodeKind::kAnd, first);
  while (skip_name("and")) node->items.push_back(parse_not());
  return finish(node);
}

const Node* Parser::parse_not() {
  if (!is_name("not")) return parse_compare();
  const Level level(*this);
  Node* node = start(NodeKind::kNot);
  ++current_;
  node->items.push_back(parse_not());
  return finish(node);
}

const Node* Parser::parse_compare() {
  static constexpr std::array<std::string_view, 6> kOperators = {"==", "!=", "<", "<=", ">", ">="};
  const Node* first = parse_sum();
  Node* node = nullptr;
  while (true) {
    std::string name;
    for (const std::string_view one : kOperators) {
      if (is_operator(one)) name = one;
    }
    if (is_name("in")) name = "in";
    if (is_name("not") && current_[1].kind == TokenKind::kName && current_[1].text == "in") {
      name = "not in";
      ++current_;
    }
    if (name.empty()) break;
    ++current_;
    if (node == nullptr) node = start(NodeKind::kCompare, first);
    node->items.push_back(parse_sum());
    node->names.push_back(std::move(name));
  }
  return node == nullptr ? first : finish(node);
}

const Node* Parser::parse_operators(Ends operators, const Node* (Parser::*operand)()) {
  const Node* left = (this->*operand)();
  while (true) {
    const auto* found = operators.begin();
    while (found != operators.end() && !is_operator(*found)) ++found;
    if (found == operators.end()) return left;
    ++current_;
    Node* node = start(NodeKind::kArithmetic, left);
    node->text = *found;
    node->items.push_back((this->*operand)());
    left = finish(node);
  }
}

const Node* Parser::parse_sum() {
  return parse_operators({"+", "-"}, &Parser::parse_concat);
}

const Node* Parser::parse_concat() {
  const Node* first = parse_product();
  if (!is_operator("~")) return first;
  Node* node = start(NodeKind::kConcatenate, first);
  while (skip_operator("~")) node->items.push_back(parse_product());
  return finish(node);
}

const Node* Parser::parse_product() {
  return parse_operators({"*", "/", "//", "%"}, &Parser::parse_power);
}

const Node* Parser::parse_power() {
  const Node* left = parse_unary(true);
  while (skip_operator("**")) {
    Node* node = start(NodeKind::kArithmetic, left);
    node->text = "**";
    node->items.push_back(parse_unary(true));
    left = finish(node);
  }
  return left;
}

const Node* Parser::parse_unary(bool with_filter) {
  const Level level(*this);
  const Node* value = nullptr;
  if (is_operator("-") || is_operator("+")) {
    Node* node = start(is_operator("-") ? NodeKind::kNegate : NodeKind::kPlus);
    ++current_;
    node->items.push_back(parse_unary(false));
    value = finish(node);
  } else {
    value = parse_primary();
  }
  value = parse_postfix(value);
  return with_filter ? parse_filter_expression(value) : value;
}

const Node* Parser::parse_primary() {
  Node* node = start(NodeKind::kConstant);
  const std::string& text = current_->text;
  switch (current_->kind) {
    case TokenKind::kName:
      if (text == "true" || text == "True" || text == "false" || text == "False") {
        node->value = Value::of(text == "true" || text == "True");
      } else if (text == "none" || text == "None") {
        node->value = Value::none();
      } else {
        node->kind = NodeKind::kName;
        node->symbol = syntax_.symbols.of(text);
        uses_.varargs = uses_.varargs || text == "varargs";
        uses_.kwargs = uses_.kwargs || text == "kwargs";
        uses_.caller = uses_.caller || text == "caller";
        uses_.loop = uses_.loop || text == "loop";
      }
      ++current_;
      return finish(node);
    case TokenKind::kString:
      while (current_->kind == TokenKind::kString) node->text += (current_++)->text;
      node->value = Value::of(std::string_view(node->text));
      return finish(node);
    case TokenKind::kInteger: {
      int64_t integer = 0;
      const auto read = std::from_chars(text.data(), text.data() + text.size(), integer);
      if (read.ec != std::errc()) fail("an integer has more than 64 bits: " + text);
      node->value = Value::of(integer);
      ++current_;
      return finish(node);
    }
    case TokenKind::kFloat:
      node->value = Value::of(std::strtod(text.c_str(), nullptr));  // infinite when out of range
      ++current_;
      return finish(node);
    default:
      break;
  }
  if (skip_operator("(")) {
    const Node* inner = parse_tuple(true, true);
    expect_operator(")");
    return inner;
  }
  if (is_operator("[")) return parse_list();
  if (is_operator("{")) return parse_dict();
  fail("expected an expression, not " + describe_current());
}

const Node* Parser::parse_list() {
  Node* node = start(NodeKind::kList);
  ++current_;
  while (!is_operator("]")) {
    if (!node->items.empty()) expect_operator(",");
    if (is_operator("]")) break;
    node->items.push_back(parse_expression());
  }
  ++current_;
  return finish(node);
}

const Node* Parser::parse_dict() {
  Node* node = start(NodeKind::kDict);
  ++current_;
  while (!is_operator("}")) {
    if (!node->items.empty()) expect_operator(",");
    if (is_operator("}")) break;
    node->items.push_back(parse_expression());
    expect_operator(":");
    node->items.push_back(parse_expression());
  }
  ++current_;
  return finish(node);
}

const Node* Parser::parse_postfix(const Node* node) {
  while (true) {
    if (is_operator(".") || is_operator("[")) {
      node = parse_subscript(node);
    } else if (is_operator("(")) {
      node = parse_call(node);
    } else {
      return node;
    }
  }
}

const Node* Parser::parse_filter_expression(const Node* node) {
  while (true) {
    if (is_operator("|")) {
      node = parse_filter(node);
    } else if (is_name("is")) {
      node = parse_test(node);
    } else if (is_operator("(")) {
      node = parse_call(node);
    } else {
      return node;
    }
  }
}

const Node* Parser::parse_subscript(const Node* object) {
  if (skip_operator(".")) {
    Node* node = start(NodeKind::kAttribute, object);
    if (current_->kind == TokenKind::kInteger) {
      node->kind = NodeKind::kItem;
      node->items.push_back(parse_primary());
    } else {
      node->text = expect_name();
    }
    return finish(node);
  }
  expect_operator("[");
  Node* node = start(NodeKind::kItem, object);
  node->items.push_back(is_operator(":") ? nullptr : parse_expression());
  while (skip_operator(":")) {
    node->kind = NodeKind::kSlice;
    if (node->items.size() == 4) fail("a slice has more than three parts");
    const bool is_left_out = is_operator(":") || is_operator("]");
    node->items.push_back(is_left_out ? nullptr : parse_expression());
  }
  if (node->kind == NodeKind::kSlice) node->items.resize(4);
  expect_operator("]");
  return finish(node);
}

std::unique_ptr<CallArguments> Parser::parse_arguments() {
  auto arguments = std::make_unique<CallArguments>();
  expect_operator("(");
  bool needs_comma = false;
  while (!is_operator(")")) {
    if (needs_comma) expect_operator(",");
    if (is_operator(")")) break;
    needs_comma = true;
    const bool is_keyword = current_->kind == TokenKind::kName &&
                            current_[1].kind == TokenKind::kOperator && current_[1].text == "=";
    if (arguments->dict != nullptr) fail("an argument follows **");
    if (skip_operator("*")) {
      if (arguments->list != nullptr) fail("two arguments begin with *");
      arguments->list = parse_expression();
    } else if (skip_operator("**")) {
      arguments->dict = parse_expression();
    } else if (is_keyword) {
      std::string name = expect_name();
      ++current_;
      arguments->keywords.emplace_back(std::move(name), parse_expression());
    } else {
      if (arguments->list != nullptr || !arguments->keywords.empty()) {
        fail("an argument without a name follows one with a name");
      }
      arguments->positional.push_back(parse_expression());
    }
  }
  ++current_;
  return arguments;
}

const Node* Parser::parse_call(const Node* callee) {
  Node* node = start(NodeKind::kCall, callee);
  node->arguments = parse_arguments();
  return finish(node);
}

// At the token before the first name; a chain of filters may follow.
const Node* Parser::parse_filter(const Node* object) {
  do {
    Node* node = object == nullptr ? start(NodeKind::kFilter) : start(NodeKind::kFilter, object);
    ++current_;
    if (object == nullptr) node->items.push_back(nullptr);
    node->text = expect_name();
    node->native = find_filter(node->text);
    node->arguments = is_operator("(") ? parse_arguments() : std::make_unique<CallArguments>();
    object = finish(node);
  } while (is_operator("|"));
  return object;
}

const Node* Parser::parse_test(const Node* object) {
  Node* node = start(NodeKind::kTest, object);
  ++current_;
  const bool is_negated = skip_name("not");
  node->text = expect_name();
  node->native = find_test(node->text);
  const bool is_value = current_->kind == TokenKind::kName ||
                        current_->kind == TokenKind::kString ||
                        current_->kind == TokenKind::kInteger ||
                        current_->kind == TokenKind::kFloat || is_operator("[") || is_operator("{");
  if (is_operator("(")) {
    node->arguments = parse_arguments();
  } else {
    node->arguments = std::make_unique<CallArguments>();
    if (is_value && !is_name("else") && !is_name("or") && !is_name("and")) {
      if (is_name("is")) fail("a test follows a test (put the first in parentheses)");
      node->arguments->positional.push_back(parse_postfix(parse_primary()));
    }
  }
  const Node* test = finish(node);
  if (!is_negated) return test;
  return finish(start(NodeKind::kNot, test));
}

}  // namespace strata::templates
