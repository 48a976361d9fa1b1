// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/template/syntax.h"

namespace strata::templates {

// Makes nodes of tokens, by the grammar of jinja2's parser: its functions have the same names.
// parser.cpp has the statements, parser_expressions.cpp the expressions.
class Parser {
 public:
  explicit Parser(Syntax& syntax)
      : syntax_(syntax), tokens_(tokens_of(syntax.source)), current_(tokens_.data()) {}
  void parse();

 private:
  using Ends = std::initializer_list<std::string_view>;

  // Counts how deeply calls are nested, because the stack is finite.
  class Level {
   public:
    explicit Level(Parser& parser);
    ~Level() { --parser_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Parser& parser_;
  };

  // The names with a meaning that a body uses.
  struct Uses {
    bool varargs = false;
    bool kwargs = false;
    bool caller = false;
    bool loop = false;
  };

  [[noreturn]] void fail(const std::string& cause) const;
  std::string describe_current() const;
  bool is_operator(std::string_view text) const;
  bool is_name(std::string_view text) const;
  bool skip_operator(std::string_view text);
  bool skip_name(std::string_view text);
  void expect_operator(std::string_view text);
  std::string expect_name();
  void expect(TokenKind kind, const char* what);

  // Starts a node at the current token, or at the beginning of another node.
  Node* start(NodeKind kind);
  Node* start(NodeKind kind, const Node* first);
  // Ends a node at the token before the current one.
  Node* finish(Node* node);

  // The statements up to a tag whose name is one of `ends`; that name is then the current token.
  std::vector<const Node*> parse_body(Ends ends);
  // ... and the rest of its tag.
  std::vector<const Node*> parse_body_to(std::string_view end);
  std::vector<const Node*> parse_statements(Ends ends);
  const Node* parse_statement();
  const Node* parse_if();
  const Node* parse_for();
  const Node* parse_set();
  const Node* parse_macro();
  const Node* parse_call_block();
  const Node* parse_filter_block();
  const Node* parse_with();
  const Node* parse_generation();
  const Node* parse_jump(NodeKind kind);
  void parse_signature(Node* macro);
  void parse_macro_body(Node* macro, std::string_view end);

  const Node* parse_target(bool with_member, std::string_view end = {});
  const Node* parse_one_target(bool with_member);
  const Node* parse_tuple(bool with_choice, bool in_parentheses, std::string_view end = {});
  bool is_tuple_end(std::string_view end) const;
  const Node* parse_expression();
  const Node* parse_or();
  const Node* parse_and();
  const Node* parse_not();
  const Node* parse_compare();
  const Node* parse_sum();
  const Node* parse_concat();
  const Node* parse_product();
  const Node* parse_power();
  const Node* parse_unary(bool with_filter);
  const Node* parse_primary();
  const Node* parse_list();
  const Node* parse_dict();
  const Node* parse_postfix(const Node* node);
  const Node* parse_filter_expression(const Node* node);
  const Node* parse_subscript(const Node* node);
  const Node* parse_call(const Node* node);
  const Node* parse_filter(const Node* node);
  const Node* parse_test(const Node* node);
  std::unique_ptr<CallArguments> parse_arguments();
  const Node* parse_operators(Ends operators, const Node* (Parser::*operand)());

  Syntax& syntax_;
  std::vector<Token> tokens_;
  const Token* current_;
  int level_ = 0;
  int loops_ = 0;  // that a break may leave
  Uses uses_;
};

}  // namespace strata::templates
