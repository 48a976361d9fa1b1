// SPDX-License-Identifier: Apache-2.0
#include "engine/template/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace strata::templates {
namespace {

constexpr int kLevelMax = 200;
constexpr uint32_t kDepthMax = 300;

}  // namespace

int Symbols::of(std::string_view name) {
  const int known = find(name);
  if (known >= 0) return known;
  names_.emplace_back(name);
  const int symbol = static_cast<int>(names_.size()) - 1;
  numbers_.emplace(names_.back(), symbol);
  return symbol;
}

int Symbols::find(std::string_view name) const {
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? -1 : found->second;
}

Parser::Level::Level(Parser& parser) : parser_(parser) {
  if (parser.level_ >= kLevelMax) {
    parser.fail(fmt::format("it is nested deeper than {} levels", kLevelMax));
  }
  ++parser.level_;
}

void Parser::fail(const std::string& cause) const {
  throw SyntaxError{cause, current_->line};
}

std::string Parser::describe_current() const {
  switch (current_->kind) {
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kVariableEnd:
      return "}}";
    case TokenKind::kBlockEnd:
      return "%}";
    default:
      return syntax_.source.substr(current_->begin, std::min(40u, current_->end - current_->begin));
  }
}

bool Parser::is_operator(std::string_view text) const {
  return current_->kind == TokenKind::kOperator && current_->text == text;
}

bool Parser::is_name(std::string_view text) const {
  return current_->kind == TokenKind::kName && current_->text == text;
}

bool Parser::skip_operator(std::string_view text) {
  if (!is_operator(text)) return false;
  ++current_;
  return true;
}

bool Parser::skip_name(std::string_view text) {
  if (!is_name(text)) return false;
  ++current_;
  return true;
}

void Parser::expect_operator(std::string_view text) {
  if (!skip_operator(text)) fail(fmt::format("expected {}, not {}", text, describe_current()));
}

std::string Parser::expect_name() {
  if (current_->kind != TokenKind::kName) fail("expected a name, not " + describe_current());
  return (current_++)->text;
}

void Parser::expect(TokenKind kind, const char* what) {
  if (current_->kind != kind) fail(fmt::format("expected {}, not {}", what, describe_current()));
  ++current_;
}

Node* Parser::start(NodeKind kind) {
  Node& node = syntax_.nodes.emplace_back();
  node.kind = kind;
  node.line = current_->line;
  node.begin = current_->begin;
  return &node;
}

Node* Parser::start(NodeKind kind, const Node* first) {
  Node* node = start(kind);
  node->line = first->line;
  node->begin = first->begin;
  node->items.push_back(first);
  return node;
}

Node* Parser::finish(Node* node) {
  node->end = current_ == tokens_.data() ? node->begin : std::max(node->begin, current_[-1].end);
  const auto measure = [&](const Node* child) {
    if (child != nullptr) node->depth = std::max(node->depth, child->depth + 1);
  };
  for (const auto* children : {&node->items, &node->body, &node->otherwise}) {
    for (const Node* child : *children) measure(child);
  }
  if (node->arguments != nullptr) {
    for (const Node* child : node->arguments->positional) measure(child);
    for (const auto& [name, child] : node->arguments->keywords) measure(child);
    measure(node->arguments->list);
    measure(node->arguments->dict);
  }
  if (node->depth > kDepthMax) {
    fail(fmt::format("its parts are nested deeper than {} levels", kDepthMax));
  }
  return node;
}

void Parser::parse() {
  syntax_.body = parse_statements({});
}

std::vector<const Node*> Parser::parse_statements(Ends ends) {
  const Level level(*this);
  std::vector<const Node*> body;
  while (current_->kind != TokenKind::kEnd) {
    if (current_->kind == TokenKind::kData) {
      Node* node = start(NodeKind::kData);
      node->text = (current_++)->text;
      body.push_back(finish(node));
    } else if (current_->kind == TokenKind::kVariableBegin) {
      ++current_;
      Node* node = start(NodeKind::kOutput);
      node->items.push_back(parse_tuple(true, false));
      body.push_back(finish(node));
      expect(TokenKind::kVariableEnd, "}}");
    } else {
      expect(TokenKind::kBlockBegin, "a tag");
      if (std::any_of(ends.begin(), ends.end(), [&](auto end) { return is_name(end); })) break;
      body.push_back(parse_statement());
      expect(TokenKind::kBlockEnd, "%}");
    }
  }
  return body;
}

std::vector<const Node*> Parser::parse_body(Ends ends) {
  skip_operator(":");
  expect(TokenKind::kBlockEnd, "%}");
  const uint32_t line = current_->line;
  std::vector<const Node*> body = parse_statements(ends);
  if (current_->kind == TokenKind::kEnd) {
    const auto* end =
        std::find_if(ends.begin(), ends.end(), [](auto tag) { return tag.starts_with("end"); });
    fail(fmt::format("the tag {} of the block from line {} is missing",
                     end == ends.end() ? *ends.begin() : *end, line));
  }
  return body;
}

std::vector<const Node*> Parser::parse_body_to(std::string_view end) {
  std::vector<const Node*> body = parse_body({end});
  ++current_;
  return body;
}

const Node* Parser::parse_statement() {
  struct Statement {
    std::string_view name;
    const Node* (Parser::*parse)();
  };
  static constexpr Statement kStatements[] = {
      {"if", &Parser::parse_if},           {"for", &Parser::parse_for},
      {"set", &Parser::parse_set},         {"macro", &Parser::parse_macro},
      {"call", &Parser::parse_call_block}, {"filter", &Parser::parse_filter_block},
      {"with", &Parser::parse_with},       {"generation", &Parser::parse_generation},
  };
  if (is_name("break")) return parse_jump(NodeKind::kBreak);
  if (is_name("continue")) return parse_jump(NodeKind::kContinue);
  for (const Statement& statement : kStatements) {
    if (is_name(statement.name)) return (this->*statement.parse)();
  }
  fail(fmt::format("the tag {} is not supported here", describe_current()));
}

const Node* Parser::parse_if() {
  const Level level(*this);  // each elif is one more
  Node* node = start(NodeKind::kIf);
  ++current_;
  node->items.push_back(parse_tuple(false, false));
  node->body = parse_body({"elif", "else", "endif"});
  if (is_name("elif")) {
    node->otherwise.push_back(parse_if());
  } else if (skip_name("else")) {
    node->otherwise = parse_body_to("endif");
  } else {
    ++current_;
  }
  return finish(node);
}

const Node* Parser::parse_for() {
  Node* node = start(NodeKind::kFor);
  ++current_;
  node->items.push_back(parse_target(false, "in"));
  if (!skip_name("in")) fail("expected `in`, not " + describe_current());
  node->items.push_back(parse_tuple(false, false, "recursive"));
  node->items.push_back(skip_name("if") ? parse_expression() : nullptr);
  node->is_recursive = skip_name("recursive");
  ++loops_;
  const bool outer_uses_loop = std::exchange(uses_.loop, false);
  node->body = parse_body({"endfor", "else"});
  node->uses_loop = std::exchange(uses_.loop, outer_uses_loop);
  --loops_;
  const bool has_else = is_name("else");
  ++current_;
  if (has_else) node->otherwise = parse_body_to("endfor");
  return finish(node);
}

const Node* Parser::parse_set() {
  Node* node = start(NodeKind::kSet);
  ++current_;
  node->items.push_back(parse_target(true));
  if (skip_operator("=")) {
    node->items.push_back(parse_tuple(true, false));
    return finish(node);
  }
  node->kind = NodeKind::kSetBlock;
  node->items.push_back(is_operator("|") ? parse_filter(nullptr) : nullptr);
  node->body = parse_body_to("endset");
  return finish(node);
}

void Parser::parse_signature(Node* macro) {
  expect_operator("(");
  while (!is_operator(")")) {
    if (!macro->symbols.empty()) expect_operator(",");
    macro->symbols.push_back(syntax_.symbols.of(expect_name()));
    macro->items.push_back(skip_operator("=") ? parse_expression() : nullptr);
    const size_t count = macro->items.size();
    if (count > 1 && macro->items[count - 1] == nullptr && macro->items[count - 2] != nullptr) {
      fail("a parameter without a default follows one with a default");
    }
  }
  ++current_;
}

void Parser::parse_macro_body(Node* macro, std::string_view end) {
  const Uses outer = std::exchange(uses_, Uses());
  const int loops = std::exchange(loops_, 0);
  macro->body = parse_body_to(end);
  macro->uses_rest = uses_.varargs;
  macro->uses_keywords = uses_.kwargs;
  macro->uses_caller = uses_.caller;
  uses_ = {outer.varargs, outer.kwargs, outer.caller, outer.loop || uses_.loop};
  loops_ = loops;
  finish(macro);
}

const Node* Parser::parse_macro() {
  Node* node = start(NodeKind::kMacro);
  ++current_;
  node->text = expect_name();
  node->symbol = syntax_.symbols.of(node->text);
  parse_signature(node);
  parse_macro_body(node, "endmacro");
  return node;
}

const Node* Parser::parse_call_block() {
  Node* node = start(NodeKind::kCallBlock);
  ++current_;
  Node* body = start(NodeKind::kMacro);
  body->text = "caller";
  if (is_operator("(")) parse_signature(body);
  const Node* call = parse_expression();
  if (call->kind != NodeKind::kCall) fail("a call block calls nothing");
  parse_macro_body(body, "endcall");
  node->items = {body, call};
  return finish(node);
}

const Node* Parser::parse_filter_block() {
  Node* node = start(NodeKind::kFilterBlock);
  // parse_filter() skips the token before the name.
  node->items.push_back(parse_filter(nullptr));
  node->body = parse_body_to("endfilter");
  return finish(node);
}

const Node* Parser::parse_with() {
  Node* node = start(NodeKind::kWith);
  ++current_;
  while (current_->kind != TokenKind::kBlockEnd) {
    if (!node->items.empty()) expect_operator(",");
    node->items.push_back(parse_target(false));
    expect_operator("=");
    node->items.push_back(parse_expression());
  }
  node->body = parse_body_to("endwith");
  return finish(node);
}

const Node* Parser::parse_generation() {
  Node* node = start(NodeKind::kGeneration);
  ++current_;
  syntax_.has_generation = true;
  const int loops = std::exchange(loops_, 0);
  node->body = parse_body_to("endgeneration");
  loops_ = loops;
  return finish(node);
}

const Node* Parser::parse_jump(NodeKind kind) {
  if (loops_ == 0) fail(describe_current() + " is outside of a loop");
  Node* node = start(kind);
  ++current_;
  return finish(node);
}

std::unique_ptr<Syntax> parse_syntax(std::string_view text) {
  auto syntax = std::make_unique<Syntax>();
  syntax->source = normalized_source(text);
  Parser(*syntax).parse();
  return syntax;
}

}  // namespace strata::templates
