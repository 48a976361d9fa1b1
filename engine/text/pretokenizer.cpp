// SPDX-License-Identifier: Apache-2.0
#include "engine/text/pretokenizer.h"

#include "engine/text/text_unicode.h"

namespace strata::text {
namespace {

using Steps = std::vector<PreTokenizeStep>;

struct SplitSpan {
  size_t begin = 0;
  size_t end = 0;
  bool is_match = false;
};

// Groups the spans of one text, matches and what is between them, as a SplitBehavior says. Looks
// one span ahead, so nothing is collected.
template <class Emit>
class SpanMerger {
 public:
  SpanMerger(SplitBehavior behavior, Emit emit) : behavior_(behavior), emit_(emit) {}

  void add(SplitSpan span) {
    if (span.begin == span.end) return;
    if (has_pending_ && merges(span)) {
      pending_.end = span.end;
      pending_.is_match = span.is_match;
      return;
    }
    flush();
    pending_ = span;
    has_pending_ = true;
  }

  void flush() {
    const bool is_removed = behavior_ == SplitBehavior::kRemoved && pending_.is_match;
    if (has_pending_ && !is_removed) emit_(pending_);
    has_pending_ = false;
  }

 private:
  bool merges(const SplitSpan& next) const {
    switch (behavior_) {
      case SplitBehavior::kMergedWithPrevious:
        return next.is_match && !pending_.is_match;
      case SplitBehavior::kMergedWithNext:
        return !next.is_match && pending_.is_match;
      case SplitBehavior::kContiguous:
        return next.is_match == pending_.is_match;
      default:
        return false;
    }
  }

  SplitBehavior behavior_;
  Emit emit_;
  SplitSpan pending_;
  bool has_pending_ = false;
};

template <class Emit>
void split(const TextPattern& pattern, SplitBehavior behavior, bool invert, std::string_view text,
           Emit emit) {
  SpanMerger<Emit> merger(behavior, emit);
  TextMatches matches(pattern, text);
  TextSpan match;
  size_t done = 0;
  while (matches.next(&match)) {
    merger.add({done, match.begin, invert});
    merger.add({match.begin, match.end, !invert});
    done = match.end;
  }
  merger.add({done, text.size(), invert});
  merger.flush();
}

class PreTokenizeRun {
 public:
  PreTokenizeRun(const Steps& steps, PieceSink& sink) : steps_(steps), sink_(sink) {}

  void apply(size_t index, std::string_view text, PieceContext context) {
    if (text.empty()) return;
    if (index == steps_.size()) {
      sink_.piece(text);
      return;
    }
    std::visit([&](const auto& step) { apply_step(index, step, text, context); }, steps_[index]);
  }

 private:
  void apply_split(size_t index, const TextPattern& pattern, SplitBehavior behavior, bool invert,
                   std::string_view text, PieceContext context) {
    split(pattern, behavior, invert, text, [&](const SplitSpan& span) {
      const bool is_leading = span.begin == 0;
      apply(index + 1, text.substr(span.begin, span.end - span.begin),
            {context.is_first && is_leading, context.continues && is_leading});
    });
  }

  void apply_step(size_t index, const SplitStep& step, std::string_view text,
                  PieceContext context) {
    apply_split(index, step.pattern, step.behavior, step.invert, text, context);
  }

  void apply_step(size_t index, const PrefixSpaceStep&, std::string_view text,
                  PieceContext context) {
    if (text.front() == ' ' || context.continues) {
      apply(index + 1, text, context);
      return;
    }
    std::string prefixed = " ";
    prefixed += text;
    apply(index + 1, prefixed, context);
  }

  void apply_step(size_t index, const MetaspaceStep& step, std::string_view text,
                  PieceContext context) {
    std::string marked;
    marked.reserve(text.size() + step.replacement.size());
    for (const char c : text) {
      if (c == ' ')
        marked += step.replacement;
      else
        marked += c;
    }
    const bool wants_prefix = step.prepend == PrependScheme::kAlways ||
                              (step.prepend == PrependScheme::kFirst && context.is_first);
    if (wants_prefix && !context.continues && !marked.starts_with(step.replacement)) {
      marked.insert(0, step.replacement);
    }
    if (step.split) {
      apply_split(index, step.replacement_pattern, SplitBehavior::kMergedWithNext, false, marked,
                  context);
    } else {
      apply(index + 1, marked, context);
    }
  }

  const Steps& steps_;
  PieceSink& sink_;
};

}  // namespace

const char* const kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

void pre_tokenize(const std::vector<PreTokenizeStep>& steps, std::string_view text,
                  PieceContext context, PieceSink& sink) {
  PreTokenizeRun(steps, sink).apply(0, text, context);
}

// Bytes that are printable characters of Latin-1 are spelt as these; the other 68 bytes, in
// ascending order, are spelt with the characters from U+0100 on.
ByteAlphabet::ByteAlphabet() {
  bytes_.fill(-1);
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
                              (byte >= 0xAE && byte <= 0xFF);
    characters_[byte] = is_printable ? byte : next++;
    bytes_[characters_[byte]] = static_cast<int16_t>(byte);
  }
}

std::string ByteAlphabet::spell(std::string_view bytes) const {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char byte : bytes) append_code_point(character_of(static_cast<uint8_t>(byte)), &text);
  return text;
}

}  // namespace strata::text
