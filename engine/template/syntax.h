// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/template/lexer.h"
#include "engine/template/value.h"

namespace strata::templates {

enum class NodeKind : uint8_t {
  // Expressions. `items` are their operands in order; null where an operand is left out.
  kConstant,     // value
  kName,         // symbol
  kList,         // items
  kTuple,        // items
  kDict,         // items: key, value, key, value, ...
  kAttribute,    // items[0], text
  kItem,         // items: object, index
  kSlice,        // items: object, begin, end, step
  kCall,         // items[0], arguments
  kFilter,       // items[0], which a filter block leaves out; text, arguments, native
  kTest,         // items[0], text, arguments, native
  kNegate,       // items[0]
  kPlus,         // items[0]
  kNot,          // items[0]
  kAnd,          // items
  kOr,           // items
  kConcatenate,  // items
  kArithmetic,   // items, text: the operator
  kCompare,      // items, one more than `names`: the operators
  kChoice,       // items: condition, value, otherwise
  // Statements.
  kData,         // text
  kOutput,       // items[0]
  kIf,           // items[0], body, otherwise
  kFor,          // items: target, list, filter; body, otherwise
  kSet,          // items: target, value
  kSetBlock,     // items: target, filter; body
  kMemberSlot,   // a target: symbol of the namespace, text
  kMacro,        // symbol, text; parameters as `symbols`, their defaults as `items`; body
  kCallBlock,    // items: a kMacro for the body, the kCall
  kFilterBlock,  // items[0], body
  kWith,         // items: target, value, target, value, ...; body
  kGeneration,   // body
  kBreak,
  kContinue,
};

struct Node;

struct CallArguments {
  std::vector<const Node*> positional;
  std::vector<std::pair<std::string, const Node*>> keywords;
  const Node* list = nullptr;  // *list
  const Node* dict = nullptr;  // **dict
};

struct Node {
  NodeKind kind;
  bool is_recursive = false;   // of a loop
  bool uses_loop = false;      // the body of a loop uses `loop`
  bool uses_rest = false;      // the body of a macro uses `varargs`
  bool uses_keywords = false;  // ... `kwargs`
  bool uses_caller = false;    // ... `caller`
  uint32_t line = 0;
  uint32_t begin = 0;  // of its text in the source
  uint32_t end = 0;
  uint32_t depth = 1;  // of the tree below
  int symbol = -1;
  std::string text;
  Value value;
  std::vector<const Node*> items;
  std::vector<int> symbols;
  std::vector<std::string> names;
  std::vector<const Node*> body;
  std::vector<const Node*> otherwise;
  std::unique_ptr<CallArguments> arguments;
  const Native* native = nullptr;
};

// Names are numbers within a template.
class Symbols {
 public:
  int of(std::string_view name);
  // -1 when the template does not use the name.
  int find(std::string_view name) const;
  const std::string& name(int symbol) const { return names_[static_cast<size_t>(symbol)]; }

 private:
  std::deque<std::string> names_;
  std::unordered_map<std::string_view, int> numbers_;
};

// A parsed template. Constant after parse_syntax().
struct Syntax {
  std::string source;  // normalized
  std::deque<Node> nodes;
  Symbols symbols;
  std::vector<const Node*> body;
  bool has_generation = false;
};

// Throws SyntaxError.
std::unique_ptr<Syntax> parse_syntax(std::string_view text);

}  // namespace strata::templates
