// SPDX-License-Identifier: Apache-2.0
#include "engine/data/token_batch.h"

#include <cstddef>

#include "engine/base/check.h"

namespace strata::data {
namespace {

// More tokens than the batch has room for.
struct BatchOverflow {};

}  // namespace

int64_t BatchLimits::bytes() const {
  constexpr size_t kLineBytes = 24;
  constexpr size_t kEventBytes = 16;
  return static_cast<int64_t>(text_bytes + ids * sizeof(int32_t) + lines * kLineBytes +
                              events * kEventBytes);
}

// Keeps what it is told, in the memory that the batch has for it.
class TokenBatch::Recorder final : public TokenSink {
 public:
  explicit Recorder(TokenBatch& batch) : batch_(batch) {}
  void begin_line(int64_t line, int64_t bytes) override {
    add({Kind::kLine, false, static_cast<uint32_t>(bytes), line});
  }
  void refuse_record(const std::string& cause) override {
    if (batch_.first_refusal_.empty()) batch_.first_refusal_ = cause;
    add({Kind::kRefused, false, 0, 0});
  }
  void begin_record(bool has_lesson) override { add({Kind::kRecord, has_lesson, 0, 0}); }
  void begin_document(bool is_chat) override { add({Kind::kDocument, is_chat, 0, 0}); }
  void begin_part(bool is_target) override { add({Kind::kPart, is_target, 0, 0}); }
  void ids(const std::vector<int32_t>& ids) override {
    if (batch_.ids_.size() + ids.size() > batch_.limits_.ids) throw BatchOverflow();
    add({Kind::kIds, false, static_cast<uint32_t>(ids.size()), 0});
    batch_.ids_.insert(batch_.ids_.end(), ids.begin(), ids.end());
  }
  void end_document() override { add({Kind::kEndDocument, false, 0, 0}); }
  void end_record(const ChatTrouble& trouble) override {
    add({Kind::kEndRecord, trouble.loses_words, trouble.leaves_prompt ? 1U : 0U, 0});
  }

 private:
  void add(const Event& event) {
    if (batch_.events_.size() == batch_.limits_.events) throw BatchOverflow();
    batch_.events_.push_back(event);
  }

  TokenBatch& batch_;
};

// Memory that is reserved and not written takes no room.
TokenBatch::TokenBatch(const BatchLimits& limits) : limits_(limits) {
  static_assert(sizeof(Line) == 24 && sizeof(Event) == 16);
  text_.reserve(limits.text_bytes);
  lines_.reserve(limits.lines);
  events_.reserve(limits.events);
  ids_.reserve(limits.ids);
}

void TokenBatch::begin(const std::string& path, RecordKind kind) {
  begin_text();
  path_ = &path;
  kind_ = kind;
  is_text_ = false;
}

void TokenBatch::begin_text() {
  is_text_ = true;
  ends_file_ = false;
  text_.clear();
  lines_.clear();
  events_.clear();
  ids_.clear();
  made_ = 0;
  first_refusal_.clear();
  failure_ = nullptr;
}

bool TokenBatch::has_room(std::string_view item) const {
  return text_.size() + item.size() <= limits_.text_bytes && lines_.size() < limits_.lines;
}

void TokenBatch::add(std::string_view item, int64_t line) {
  STRATA_CHECK(has_room(item));
  lines_.push_back({text_.size(), item.size(), line});
  text_ += item;
}

void TokenBatch::add_block(std::string_view block, bool continues) {
  add(block, 1);
  continues_ = continues;
}

std::string_view TokenBatch::text_of(const Line& line) const {
  return std::string_view(text_).substr(line.begin, line.bytes);
}

void TokenBatch::tokenize(RecordTokenizer& tokenizer, const Line& line, TokenSink& sink) const {
  if (is_text_) return tokenizer.text(text_of(line), continues_, sink);
  sink.begin_line(line.number, static_cast<int64_t>(line.bytes));
  tokenizer.record(text_of(line), *path_, line.number, kind_, sink);
}

void TokenBatch::make(RecordTokenizer& tokenizer) noexcept {
  Recorder recorder(*this);
  for (; made_ < lines_.size() && !failure_; ++made_) {
    const size_t events = events_.size();
    const size_t ids = ids_.size();
    try {
      tokenize(tokenizer, lines_[made_], recorder);
    } catch (const BatchOverflow&) {
      events_.resize(events);
      ids_.resize(ids);
      return;
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
}

void TokenBatch::replay(TokenSink& sink) const {
  std::vector<int32_t> part;
  auto ids = ids_.begin();
  for (const Event& event : events_) {
    switch (event.kind) {
      case Kind::kLine:
        sink.begin_line(event.line, event.count);
        break;
      case Kind::kRefused:
        sink.refuse_record(first_refusal_);
        break;
      case Kind::kRecord:
        sink.begin_record(event.flag);
        break;
      case Kind::kDocument:
        sink.begin_document(event.flag);
        break;
      case Kind::kPart:
        sink.begin_part(event.flag);
        break;
      case Kind::kIds:
        part.assign(ids, ids + event.count);
        ids += event.count;
        sink.ids(part);
        break;
      case Kind::kEndDocument:
        sink.end_document();
        break;
      case Kind::kEndRecord:
        sink.end_record({.loses_words = event.flag, .leaves_prompt = event.count > 0});
        break;
    }
  }
}

void TokenBatch::hand_over(RecordTokenizer& tokenizer, TokenSink& sink) {
  replay(sink);
  if (failure_) std::rethrow_exception(failure_);
  for (; made_ < lines_.size(); ++made_) tokenize(tokenizer, lines_[made_], sink);
}

}  // namespace strata::data
