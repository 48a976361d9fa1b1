// SPDX-License-Identifier: Apache-2.0
#include "engine/text/ascii_automaton.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "engine/text/text_unicode.h"

namespace strata::text {
namespace {

using Characters = AsciiAutomaton::Characters;

constexpr size_t kPatternBytesMax = 4096;
constexpr size_t kNodesMax = 512;
constexpr size_t kStatesMax = 256;
constexpr int kRepeatsMax = 32;
constexpr int kDepthMax = 32;
constexpr int kEndless = -1;

// The pattern has no table.
struct NoTable {};

// A part of a pattern.
struct Part {
  enum class Kind : uint8_t { kCharacter, kSequence, kChoice, kRepeat, kLook };
  Kind kind = Kind::kSequence;
  Characters characters = {};    // of a character or a look at the next one
  bool passes_at_end = false;    // of a look
  std::vector<Part> parts = {};  // of a sequence or choice; what is repeated
  int least = 0;                 // times
  int most = 0;                  // kEndless: any

  bool may_be_empty() const {
    const auto is_empty = [](const Part& part) { return part.may_be_empty(); };
    switch (kind) {
      case Kind::kCharacter:
        return false;
      case Kind::kSequence:
        return std::all_of(parts.begin(), parts.end(), is_empty);
      case Kind::kChoice:
        return std::any_of(parts.begin(), parts.end(), is_empty);
      case Kind::kRepeat:
        return least == 0 || is_empty(parts.front());
      case Kind::kLook:
        return true;
    }
    return true;
  }
};

}  // namespace

// Reads a pattern. Throws NoTable for what only PCRE2 can match.
class AsciiAutomaton::Parser {
 public:
  Parser(std::string_view pattern, const FindCharacters& find) : pattern_(pattern), find_(find) {}

  Part parse() {
    Part all = choice(false, 0);
    if (at_ != pattern_.size()) throw NoTable();
    return all;
  }

 private:
  bool takes(std::string_view text) {
    if (pattern_.substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }
  char next() const { return at_ < pattern_.size() ? pattern_[at_] : '\0'; }

  Part choice(bool ignores_case, int depth) {
    if (depth > kDepthMax) throw NoTable();
    Part result = {.kind = Part::Kind::kChoice};
    do result.parts.push_back(sequence(ignores_case, depth));
    while (takes("|"));
    return result;
  }

  Part sequence(bool ignores_case, int depth) {
    Part result = {.kind = Part::Kind::kSequence};
    while (at_ < pattern_.size() && next() != '|' && next() != ')') {
      result.parts.push_back(repeated(one(ignores_case, depth)));
    }
    return result;
  }

  Part one(bool ignores_case, int depth) {
    if (takes("(?!")) return look(false, ignores_case);
    if (takes("(?=")) return look(true, ignores_case);
    const bool is_plain = takes("(?:");
    const bool ignores = !is_plain && takes("(?i:");
    if (!is_plain && !ignores && next() == '(') {
      ++at_;
      if (next() == '?') throw NoTable();
    } else if (!is_plain && !ignores) {
      return {.kind = Part::Kind::kCharacter, .characters = find_(atom(), ignores_case)};
    }
    Part inner = choice(ignores_case || ignores, depth + 1);
    if (!takes(")")) throw NoTable();
    return inner;
  }

  // A look at one character.
  Part look(bool is_wanted, bool ignores_case) {
    const Characters characters = find_(atom(), ignores_case);
    if (!takes(")")) throw NoTable();
    return {.kind = Part::Kind::kLook,
            .characters = is_wanted ? characters : ~characters,
            .passes_at_end = !is_wanted};
  }

  // The text of a character or class.
  std::string_view atom() {
    const size_t begin = at_;
    if (begin == pattern_.size() ||
        std::string_view("^$*+?{()|").find(next()) != std::string_view::npos) {
      throw NoTable();
    }
    if (next() == '\\') {
      escape();
    } else if (takes("[")) {
      takes("^");
      for (bool is_first = true; is_first || next() != ']'; is_first = false) {
        if (at_ >= pattern_.size()) throw NoTable();
        next() == '\\' ? escape() : void(++at_);
      }
      ++at_;
    } else {
      at_ += utf8_length(next());
    }
    return pattern_.substr(begin, at_ - begin);
  }

  void escape() {
    at_ += 2;
    if (next() != '{' || std::string_view("pPx").find(pattern_[at_ - 1]) == std::string_view::npos)
      return;
    const size_t close = pattern_.find('}', at_);
    if (close == std::string_view::npos) throw NoTable();
    at_ = close + 1;
  }

  Part repeated(Part part) {
    Part result = {.kind = Part::Kind::kRepeat, .least = 0, .most = 1};
    if (takes("*")) {
      result.most = kEndless;
    } else if (takes("+")) {
      result.least = 1;
      result.most = kEndless;
    } else if (takes("{")) {
      result.least = number();
      result.most = result.least;
      if (takes(",")) result.most = next() == '}' ? kEndless : number();
      if (!takes("}") || (result.most != kEndless && result.most < result.least)) throw NoTable();
    } else if (!takes("?")) {
      return part;
    }
    const bool is_greedy = std::string_view("?+*{").find(next()) == std::string_view::npos;
    if (!is_greedy || part.may_be_empty()) throw NoTable();
    result.parts.push_back(std::move(part));
    return result;
  }

  int number() {
    int value = 0;
    const char* begin = pattern_.data() + at_;
    const auto [end, error] = std::from_chars(begin, pattern_.data() + pattern_.size(), value);
    if (error != std::errc() || value < 0 || value > kRepeatsMax) throw NoTable();
    at_ += static_cast<size_t>(end - begin);
    return value;
  }

  const std::string_view pattern_;
  const FindCharacters& find_;
  size_t at_ = 0;
};

// The pattern as nodes that are tried in order.
class AsciiAutomaton::Program {
 public:
  struct Node {
    enum class Kind : uint8_t { kMatch, kCharacter, kLook, kFork };
    Kind kind;
    Characters characters = {};
    bool passes_at_end = false;
    size_t next = 0;
    size_t other = 0;  // of a fork: what is tried after `next`
  };

  explicit Program(const Part& part) {
    nodes.push_back({.kind = Node::Kind::kMatch});
    first = compile(part, 0);
  }

  std::vector<Node> nodes;
  size_t first = 0;

 private:
  size_t add(Node node) {
    if (nodes.size() == kNodesMax) throw NoTable();
    nodes.push_back(node);
    return nodes.size() - 1;
  }

  // Returns where the nodes of a part begin, which go on to `next`.
  size_t compile(const Part& part, size_t next) {
    switch (part.kind) {
      case Part::Kind::kCharacter:
        return add({.kind = Node::Kind::kCharacter, .characters = part.characters, .next = next});
      case Part::Kind::kLook:
        return add({.kind = Node::Kind::kLook,
                    .characters = part.characters,
                    .passes_at_end = part.passes_at_end,
                    .next = next});
      case Part::Kind::kSequence:
        for (auto one = part.parts.rbegin(); one != part.parts.rend(); ++one)
          next = compile(*one, next);
        return next;
      case Part::Kind::kChoice: {
        size_t at = compile(part.parts.back(), next);
        for (auto one = part.parts.rbegin() + 1; one != part.parts.rend(); ++one) {
          at = add({.kind = Node::Kind::kFork, .next = compile(*one, next), .other = at});
        }
        return at;
      }
      case Part::Kind::kRepeat:
        return compile_repeat(part, next);
    }
    throw NoTable();
  }

  size_t compile_repeat(const Part& part, size_t next) {
    const Part& one = part.parts.front();
    size_t at = next;
    if (part.most == kEndless) {
      at = add({.kind = Node::Kind::kFork, .other = next});
      const size_t again = compile(one, at);
      nodes[at].next = again;
    }
    for (int k = part.least; k < part.most; ++k) {
      at = add({.kind = Node::Kind::kFork, .next = compile(one, at), .other = next});
    }
    for (int k = 0; k < part.least; ++k) at = compile(one, at);
    return at;
  }
};

// Makes the table: a state is the list of nodes that may go on, the first tried first.
class AsciiAutomaton::Builder {
 public:
  explicit Builder(const Program& program) : program_(program) {}

  AsciiAutomaton build() {
    find_kinds();
    state_of({program_.first});
    for (size_t state = 0; state < states_.size(); ++state) {
      for (size_t kind = 0; kind < kind_count_; ++kind) {
        result_.steps_.push_back(kind == kOtherKind ? kUnknown : step(state, kind));
      }
    }
    return std::move(result_);
  }

 private:
  using Node = Program::Node;
  using State = std::vector<size_t>;
  static constexpr uint32_t kUnknown = kStops | kIsUndecided;

  void find_kinds() {
    std::map<std::vector<bool>, uint8_t> known;
    result_.kinds_.fill(kOtherKind);
    samples_.assign(2, 0);
    for (size_t character = 0; character < 128; ++character) {
      std::vector<bool> within;
      for (const Node& node : program_.nodes) within.push_back(node.characters[character]);
      const auto [entry, is_new] = known.emplace(within, static_cast<uint8_t>(samples_.size()));
      if (is_new) samples_.push_back(character);
      result_.kinds_[character] = entry->second;
    }
    kind_count_ = samples_.size();
  }

  size_t state_of(const State& nodes) {
    const auto [entry, is_new] = numbers_.emplace(nodes, states_.size());
    if (!is_new) return entry->second;
    if (states_.size() == kStatesMax) throw NoTable();
    states_.push_back(nodes);
    return entry->second;
  }

  uint32_t step(size_t state, size_t kind) {
    seen_.assign(program_.nodes.size(), false);
    next_.clear();
    is_match_ = false;
    const State from = states_[state];
    for (const size_t node : from) {
      if (!is_match_) follow(node, kind);
    }
    const uint32_t match = is_match_ ? kIsMatch : 0;
    if (next_.empty()) return match | kStops;
    return match | static_cast<uint32_t>(state_of(next_) * kind_count_) << kFlagBits;
  }

  // Goes on from a node up to nodes behind a character of this kind. A match ends the search: what
  // is tried later does not count.
  void follow(size_t node, size_t kind) {
    if (is_match_ || seen_[node]) return;
    seen_[node] = true;
    const Node& at = program_.nodes[node];
    const bool is_end = kind == kEndKind;
    switch (at.kind) {
      case Node::Kind::kMatch:
        is_match_ = true;
        return;
      case Node::Kind::kCharacter:
        if (is_end || !at.characters[samples_[kind]]) return;
        if (std::find(next_.begin(), next_.end(), at.next) == next_.end()) next_.push_back(at.next);
        return;
      case Node::Kind::kLook:
        if (is_end ? at.passes_at_end : at.characters[samples_[kind]]) follow(at.next, kind);
        return;
      case Node::Kind::kFork:
        follow(at.next, kind);
        follow(at.other, kind);
        return;
    }
  }

  const Program& program_;
  AsciiAutomaton result_;
  size_t kind_count_ = 0;
  std::vector<size_t> samples_;  // a character of each kind
  std::map<State, size_t> numbers_;
  std::vector<State> states_;

  // Of the step that is made.
  std::vector<bool> seen_;
  State next_;
  bool is_match_ = false;
};

std::optional<AsciiAutomaton> AsciiAutomaton::make(std::string_view pattern,
                                                   const FindCharacters& find) {
  if (pattern.size() > kPatternBytesMax) return std::nullopt;
  try {
    const Program program(Parser(pattern, find).parse());
    return Builder(program).build();
  } catch (const NoTable&) {
    return std::nullopt;
  }
}

}  // namespace strata::text
