// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/template/chat_template.h"
#include "engine/template/library.h"
#include "engine/template/python_text.h"
#include "engine/template/syntax.h"

namespace strata::templates {

// The variables of a block. A macro keeps the scope that it was defined in.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<int, Value>> names;
  bool is_kept = false;
};

// What cannot be rendered.
struct RenderFault {
  std::string cause;
  std::string advice;
  bool is_of_memory = false;  // or of the output's size: TemplateLimits may have less than usual
};

struct Items {
  const Value* items;
  size_t size;
};

// Renders a template once: walks its tree as Python would run the program that jinja2 makes of it.
//
// Bounded: steps, depth, memory and output have limits, beyond which it fails like any other fault.
// Failure: RenderFault; current() is then where it happened.
class Renderer {
 public:
  Renderer(const Syntax& syntax, const TemplateSettings& settings);

  // A variable that the template finds when it has set none of that name.
  void define(std::string_view name, const Value& value);
  RenderedChat run();
  // The expression that was evaluated last.
  const Node* current() const { return current_; }
  Heap& heap() { return heap_; }
  const TemplateSettings& settings() const { return settings_; }

  // The library of filters and functions calls it.
  [[noreturn]] static void fail(const std::string& cause, const std::string& advice = "");
  [[noreturn]] static void fail_for_memory(const std::string& cause);
  // Fails beyond the limit of steps; a step is about what one node takes.
  void charge(size_t steps);
  Value string(std::string_view text);
  Value list(const std::vector<Value>& items) { return heap_.sequence(SequenceKind::kList, items); }
  // Python's str(value), repr(value).
  std::string_view text_of(const Value& value);
  std::string_view repr_of(const Value& value);
  std::string_view json_of(const Value& value, const JsonStyle& style);
  int64_t integer_of(const Value& value, const char* what) const;
  // What a loop over the value sees; uses up an iterator.
  Items items_of(const Value& value);
  // object.name and object[key] as jinja2 looks them up.
  Value attribute_of(const Value& object, std::string_view name);
  Value item_of(const Value& object, const Value& key);
  Value slice(const Value& object, const Value& begin, const Value& end, const Value& step);
  static void require_hashable(const Value& key);
  Value call(const Value& callee, const Arguments& arguments);
  Value call(const Native& native, const Value& self, const Arguments& arguments);
  bool is_less(const Value& left, const Value& right);
  bool equal(const Value& left, const Value& right);
  bool contains(const Value& container, const Value& item);
  bool compare(const Value& left, std::string_view name, const Value& right);
  Value add(const Value& left, const Value& right);
  Value multiply(const Value& left, const Value& right);
  Value arithmetic(const Value& left, std::string_view name, const Value& right);
  Value negate(const Value& value) const;
  Value replaced(const Value& text, std::string_view from, std::string_view to, int64_t most);
  Value pair(const Entry& entry);
  // Fails when a text that is being made outgrows the limit of memory.
  void require_room(const std::string& text);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class Level;
  class NewScope;
  class Capture;

  void write(std::string_view text);
  void write(const Value& value);

  Flow run_all(const std::vector<const Node*>& body);
  Flow run(const Node& node);
  Flow run_for(const Node& node);
  // Runs the loop over `items`; false when no item passed the filter.
  bool run_loop(const Node& node, const Items& items, size_t depth, Flow& flow);
  void run_set(const Node& node);
  // Runs the body for its text; a jump out of the body leaves the text behind.
  Flow run_captured(const Node& node, Value& text);
  Flow run_set_block(const Node& node);
  void run_call_block(const Node& node);
  Flow run_filter_block(const Node& node);
  Flow run_with(const Node& node);
  void run_generation(const Node& node);
  void assign(const Node& target, const Value& value);
  void set(int symbol, const Value& value);
  Value macro_of(const Node& node);

  Value evaluate(const Node& node);
  Value evaluate_name(const Node& node);
  Value evaluate_list(const Node& node);
  Value evaluate_dict(const Node& node);
  Value evaluate_attribute(const Node& node);
  Value evaluate_slice(const Node& node);
  Value evaluate_call(const Node& node);
  Value evaluate_filter(const Node& node, const Value* object = nullptr);
  Value evaluate_test(const Node& node);
  Value evaluate_concatenation(const Node& node);
  Value evaluate_compare(const Node& node);
  Value repeat(const Value& value, int64_t count);
  void fill(const CallArguments& nodes, Arguments& arguments);
  Value call_macro(const Function& function, const Arguments& arguments);
  Value call_loop(const Loop& loop, const Arguments& arguments);

  const Syntax& syntax_;
  const TemplateSettings& settings_;
  Heap heap_;
  std::deque<Scope> scopes_;
  std::vector<Scope*> free_scopes_;
  Scope globals_;
  Scope* scope_;
  const Node* current_ = nullptr;
  size_t steps_ = 0;
  int depth_ = 0;
  RenderedChat result_;
  std::string* out_;            // result_.text, or what a macro or block captures
  bool is_generating_ = false;  // within a generation block
  size_t captured_bytes_ = 0;   // in all captures under way
  std::string text_;            // of the value that is written
};

}  // namespace strata::templates
