// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <utility>

#include "engine/base/advice.h"
#include "engine/base/blocking_call.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/json_plain.h"
#include "engine/config/json_stream.h"

namespace strata::config {
namespace {

// An input iterator that records how far the lexer has read, for the position in our own errors.
class CountedText {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountedText(const char* at, const char** read_to) : at_(at), read_to_(read_to) {}
  reference operator*() const { return *at_; }
  CountedText& operator++() {
    ++at_;
    *read_to_ = at_;
    return *this;
  }
  CountedText operator++(int) {
    CountedText old = *this;
    ++*this;
    return old;
  }
  bool operator==(const CountedText& other) const { return at_ == other.at_; }
  bool operator!=(const CountedText& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** read_to_;
};

// What a syntax error of the library means: the first row whose fragment the library's text has.
struct JsonMistake {
  std::string_view fragment;
  std::string_view cause;
  std::string_view advice;
};

constexpr JsonMistake kJsonMistakes[] = {
    {"invalid BOM", "it begins with a part of a byte order mark", "save it as UTF-8"},
    {"ill-formed UTF-8", "a byte is not UTF-8", "convert the file to UTF-8"},
    {"missing closing quote", "a string has no closing quote", "close it"},
    {"must be escaped", "a string has a line break or another control character in it",
     "write \\n, \\t or \\u001f instead"},
    {"forbidden character after backslash", "a backslash does not begin an escape of JSON",
     "write \\\\ for a backslash"},
    {"4 hex digits", "\\u is not followed by four hexadecimal digits", "write it as in \\u00e9"},
    {"surrogate", "a \\u escape is only one half of a pair",
     "write both halves, or the character itself"},
    {"number overflow", "a number is too large", "write a number below 1e308"},
    {"invalid number", "a number is not complete", "write it as 12, -0.5 or 1e-5"},
    {"last read: '/'", "JSON has no comments", "remove it"},
    {"unexpected end of input", "it ends before the value is complete",
     "complete it: the file may be cut short"},
    {"parsing object key",
     "the name of a member is not in double quotes, or there is a comma too many",
     "write \"name\": value"},
    {"object separator", "the colon after a name is missing", "write \"name\": value"},
    {"invalid literal", "a word is neither a string nor a number, true, false or null",
     "put strings in double quotes"},
    {"expected end of input", "there is more text after the value", "remove it"},
    {"parsing object", "a comma or } is missing", "put it there"},
    {"parsing array", "a comma or ] is missing", "put it there"},
    {"parsing value", "a value is missing", "write one, or remove the comma before it"},
};

JsonMistake mistake_of(std::string_view library_text) {
  for (const JsonMistake& mistake : kJsonMistakes) {
    if (library_text.find(mistake.fragment) != library_text.npos) return mistake;
  }
  return {"", "it is not JSON", "correct it there"};
}

// Builds a Json from the library's events. Refuses duplicate names and texts beyond the limits,
// which the library's own parser accepts.
class Builder {
 public:
  using json = nlohmann::json;

  Builder(std::string_view text, const std::string& source, int64_t first_line,
          const JsonLimits& limits, std::string_view advice, const std::vector<JsonStream>& streams,
          const char* const* read_to)
      : text_(text),
        source_(source),
        first_line_(first_line),
        limits_(limits),
        advice_(advice),
        streams_(streams),
        read_to_(read_to) {}

  bool null() { return add(Json()); }
  bool boolean(bool value) { return add(Json(value)); }
  bool number_integer(json::number_integer_t value) { return add(Json(int64_t{value})); }
  bool number_unsigned(json::number_unsigned_t value) {
    // Numbers that fit both types are int64_t, so that equal numbers are equal values.
    if (value <= static_cast<uint64_t>(INT64_MAX)) return add(Json(static_cast<int64_t>(value)));
    return add(Json(uint64_t{value}));
  }
  bool number_float(double value, const std::string&) { return add(Json(value)); }
  bool string(std::string& value) { return add(Json(std::move(value))); }
  bool binary(json::binary_t&) { return false; }

  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool key(std::string& name) {
    Level& level = levels_.back();
    level.name = name;
    if (level.stream != nullptr) return true;
    if (!level.names->insert(name).second) fail(fmt::format("duplicate member \"{}\"", name));
    level.value.members().push_back({std::move(name), Json()});
    return true;
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    const JsonMistake mistake = mistake_of(error.what());
    constexpr int kSyntaxError = 101;
    const bool has_advice = error.id == kSyntaxError && !advice_.empty();
    fail_at(position > 0 ? position - 1 : 0,
            fmt::format("{} ({})", mistake.cause, has_advice ? advice_ : mistake.advice));
  }

  Json take() { return std::move(result_); }

 private:
  struct Level {
    Json value;
    std::unique_ptr<std::unordered_set<std::string>> names;  // of an object
    std::string name;                                        // the last name
    const JsonStream* stream = nullptr;
  };

  // The stream for a value that begins here; null when there is none.
  const JsonStream* find_stream() const {
    if (streams_.empty() || (!levels_.empty() && levels_.back().stream != nullptr)) return nullptr;
    std::string path;
    for (const Level& level : levels_) {
      if (!level.value.is_object()) return nullptr;
      path += (path.empty() ? "" : ".") + level.name;
    }
    const auto found = std::find_if(streams_.begin(), streams_.end(),
                                    [&](const JsonStream& one) { return one.path == path; });
    return found == streams_.end() ? nullptr : &*found;
  }

  bool open(Json value) {
    if (static_cast<int>(levels_.size()) >= limits_.depth) {
      fail(fmt::format("nested deeper than {} levels", limits_.depth));
    }
    count();
    Level level;
    level.stream = find_stream();
    if (value.is_object()) level.names = std::make_unique<std::unordered_set<std::string>>();
    level.value = std::move(value);
    levels_.push_back(std::move(level));
    return true;
  }

  bool close() {
    Json value = std::move(levels_.back().value);
    levels_.pop_back();
    place(std::move(value));
    return true;
  }

  bool add(Json value) {
    count();
    place(std::move(value));
    return true;
  }

  void place(Json value) {
    if (levels_.empty()) {
      result_ = std::move(value);
    } else if (const JsonStream* stream = levels_.back().stream) {
      stream->take(std::move(levels_.back().name), std::move(value));
    } else if (Json& parent = levels_.back().value; parent.is_object()) {
      parent.members().back().value = std::move(value);
    } else {
      parent.items().push_back(std::move(value));
    }
  }

  void count() {
    if (++values_ > limits_.values) fail(fmt::format("more than {} values", limits_.values));
  }

  [[noreturn]] void fail(const std::string& cause) const {
    fail_at(static_cast<size_t>(*read_to_ - text_.data()), cause);
  }

  [[noreturn]] void fail_at(size_t offset, const std::string& cause) const {
    int64_t line = first_line_;
    int64_t column = 1;
    for (size_t i = 0; i < offset && i < text_.size(); ++i) {
      column = text_[i] == '\n' ? 1 : column + 1;
      line += text_[i] == '\n';
    }
    throw Error(ErrorCode::kConfig,
                fmt::format("cannot read JSON: {}: line {}, column {}: {}", source_, line, column,
                            with_advice(cause, "correct it there")));
  }

  const std::string_view text_;
  const std::string& source_;
  const int64_t first_line_;
  const JsonLimits limits_;
  const std::string_view advice_;
  const std::vector<JsonStream>& streams_;
  const char* const* read_to_;
  std::vector<Level> levels_;
  int64_t values_ = 0;
  Json result_;
};

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

Json parse_text(std::string_view text, const std::string& source, int64_t first_line,
                const JsonLimits& limits, std::string_view advice,
                const std::vector<JsonStream>& streams) {
  if (static_cast<int64_t>(text.size()) > limits.bytes) {
    throw Error(ErrorCode::kConfig,
                fmt::format("cannot read JSON: {}: it has {}, more than "
                            "the limit of {} (is it the right file?)",
                            source, format_bytes(static_cast<int64_t>(text.size())),
                            format_bytes(limits.bytes)));
  }
  if (streams.empty()) {
    if (std::optional<Json> plain = read_plain_json(text, limits)) return std::move(*plain);
  }
  const char* read_to = text.data();
  Builder builder(text, source, first_line, limits, advice, streams, &read_to);
  const CountedText first(text.data(), &read_to);
  const CountedText last(text.data() + text.size(), &read_to);
  nlohmann::json::sax_parse(first, last, &builder);
  return builder.take();
}

}  // namespace

Json Json::parse(std::string_view text, const std::string& source, const JsonLimits& limits,
                 std::string_view advice) {
  return parse_text(text, source, 1, limits, advice, {});
}

Json parse_json_at(int64_t line, std::string_view text, const std::string& source,
                   const JsonLimits& limits, std::string_view advice) {
  return parse_text(text, source, line, limits, advice, {});
}

Json Json::read_file(const std::string& path, const JsonLimits& limits, std::string_view advice) {
  return read_json_file(path, limits, advice, {});
}

Json parse_json(std::string_view text, const std::string& source, const JsonLimits& limits,
                std::string_view advice, const std::vector<JsonStream>& streams) {
  return parse_text(text, source, 1, limits, advice, streams);
}

Json read_json_file(const std::string& path, const JsonLimits& limits, std::string_view advice,
                    const std::vector<JsonStream>& streams) {
  std::optional<BlockingCall> call(std::in_place, "read", path);
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) throw system_error(ErrorCode::kConfig, "cannot open: " + path, errno);
  struct stat info {};
  if (::fstat(file.fd, &info) != 0)
    throw system_error(ErrorCode::kIo, "cannot stat: " + path, errno);
  if (!S_ISREG(info.st_mode)) {
    throw Error(ErrorCode::kConfig,
                "cannot read JSON: " + path + ": it is not a regular file (give a file)");
  }
  if (info.st_size > limits.bytes) {
    throw Error(
        ErrorCode::kConfig,
        fmt::format("cannot read JSON: {}: it has {}, the limit is {} (is it the right file?)",
                    path, format_bytes(info.st_size), format_bytes(limits.bytes)));
  }
  call.reset();
  std::string text(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    call.emplace("read", path);
    const ssize_t got = ::read(file.fd, text.data() + done, text.size() - done);
    call.reset();
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw system_error(ErrorCode::kIo, "cannot read: " + path, errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  if (text.starts_with("version https://git-lfs")) {
    throw Error(ErrorCode::kConfig,
                "cannot read JSON: " + path +
                    ": it is a Git LFS pointer, not the file (run git lfs pull there)");
  }
  return parse_json(text, path, limits, advice, streams);
}

}  // namespace strata::config
