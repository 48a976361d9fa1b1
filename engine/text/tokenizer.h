// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/text/normalizer.h"
#include "engine/text/pretokenizer.h"
#include "engine/text/token_model.h"
#include "engine/text/tokenizer_decoder.h"

namespace strata::text {

class TokenTrie;
class TokenizerCache;

// A token that is searched in the text itself, before the model gets the text.
struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false;      // left out by decode() on request
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // includes the white space after it
  bool single_word = false;  // not found within a word
  bool normalized = false;   // searched in the normalized text, and normalized itself
  bool as_spelt = false;     // with `normalized`: not normalized itself
};

// The contents of a tokenizer.json or tokenizer.model.
struct TokenizerDefinition {
  ModelDefinition model;
  std::vector<AddedToken> added_tokens;
  std::vector<NormalizeStep> normalizers;
  std::vector<PreTokenizeStep> pre_tokenizers;
  bool byte_level = false;  // pieces are spelt in the byte alphabet for the model
  std::vector<int32_t> prefix_ids;
  std::vector<int32_t> suffix_ids;
  std::optional<std::vector<DecodeStep>> decoders;  // nullopt: tokens are joined with spaces
  bool is_joined_at_tokens = false;  // text behind an added token continues the text before it
  // From tokenizer.model; the files beside it override them.
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
};

// A chat template of a model; the usual one has the name "default".
struct NamedTemplate {
  std::string name;
  std::string source;  // Jinja
  std::string path;    // the file that has it
};

// The contents of tokenizer_config.json and of the files of templates that are used.
struct TokenizerConfig {
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::vector<NamedTemplate> chat_templates;
  std::vector<std::pair<std::string, std::string>> special_tokens;  // "bos_token" and its text
};

struct EncodeOptions {
  bool add_special = true;          // prefix and suffix of the post-processor
  bool continues = false;           // the text follows other text, so nothing is prepended
  bool is_behind_token = false;     // it follows an added token
  TokenizerCache* cache = nullptr;  // of the calling thread; null: the tokenizer's own
};

// Converts text to token ids and back, exactly as the `tokenizers` library does with the same
// tokenizer.json, or as `sentencepiece` does with the same tokenizer.model.
//
// Guarantees: ids and text equal that library's; unsupported files are refused when they are read.
// Memory: the vocabulary (about 150 bytes a token) and caches of at most 8.5 MiB. Threads: any
// number may encode, each with a cache of its own; one at a time uses the tokenizer's. Failure:
// encode() throws Error that names the byte for text that is not UTF-8, decode() for an id that the
// vocabulary lacks.
class Tokenizer {
 public:
  Tokenizer(TokenizerDefinition definition, TokenizerConfig config);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Reads tokenizer.json of a model directory, or else tokenizer.model, and what
  // tokenizer_config.json and the files of templates add.
  static Tokenizer read(const std::string& directory);
  // Whether the directory has one of the two.
  static bool is_in(const std::string& directory);

  // Receives the ids in order, a part at a time, so that the ids of a long text are never all in
  // memory.
  using TakeIds = std::function<void(const std::vector<int32_t>& ids)>;
  void encode(std::string_view text, const EncodeOptions& options, const TakeIds& take) const;
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Calls `use` with the parts of a text from left to right: the texts between added tokens that
  // encode() finds, and these tokens, whose id is not -1.
  using UsePart = std::function<void(std::string_view part, int32_t id)>;
  void split_at_tokens(std::string_view text, const UsePart& use) const;
  std::string decode(const std::vector<int32_t>& ids, bool skip_special = false) const;

  // One more than the largest id.
  int64_t vocabulary_size() const { return vocabulary_size_; }
  // The memory that it holds or may hold later.
  int64_t bytes() const;
  // A text as it is before tokens are found in it, and whether nothing is added to it or left out
  // after that.
  std::string normalized(std::string_view text) const;
  bool keeps_bytes() const;
  // The bytes of a text that a token of the vocabulary stands for, where nothing was normalized.
  int64_t bytes_of(int32_t id) const { return token_bytes_[static_cast<size_t>(id)]; }
  // The text of a token in the vocabulary. Throws Error for an id that has none.
  const std::string& piece_of(int32_t id) const;
  // Whether a token has this id; a vocabulary may have holes.
  bool has(int32_t id) const;
  // Whether decode() can be asked to leave it out.
  bool is_special(int32_t id) const;
  // Finds added tokens too; -1 when there is no such token.
  int32_t id_of(std::string_view token) const;
  std::optional<int32_t> bos_id() const { return config_.bos_id; }
  std::optional<int32_t> eos_id() const { return config_.eos_id; }
  const TokenizerConfig& config() const { return config_; }
  // The ids that encode() with add_special puts before and after a text.
  const std::vector<int32_t>& prefix_ids() const { return prefix_ids_; }
  const std::vector<int32_t>& suffix_ids() const { return suffix_ids_; }
  // Whether encode() with add_special already ends a text with this id.
  bool appends(int32_t id) const;

 private:
  class Encoder;

  uint32_t count_bytes(int32_t id) const;
  void encode_normalized(std::string_view text, PieceContext context, Encoder& encoder) const;
  template <class OnText, class OnToken>
  void split_added(const TokenTrie& trie, std::string_view text, OnText on_text,
                   OnToken on_token) const;

  // Constant after construction.
  std::unique_ptr<TokenModel> model_;
  std::vector<AddedToken> added_;
  std::vector<std::string> added_spelling_;  // as they occur in the searched text
  std::unordered_map<int32_t, size_t> added_by_id_;
  std::vector<NormalizeStep> normalizers_;
  std::vector<PreTokenizeStep> pre_tokenizers_;
  bool byte_level_;
  std::vector<int32_t> prefix_ids_;
  std::vector<int32_t> suffix_ids_;
  std::optional<std::vector<DecodeStep>> decoders_;
  bool is_joined_at_tokens_;
  TokenizerConfig config_;
  ByteAlphabet alphabet_;
  int64_t vocabulary_size_ = 0;
  std::vector<uint32_t> token_bytes_;           // of each id; 0 in holes
  std::unique_ptr<TokenTrie> verbatim_trie_;    // tokens searched in the text as given
  std::unique_ptr<TokenTrie> normalized_trie_;  // tokens searched in the normalized text

  std::unique_ptr<TokenizerCache> cache_;
};

// Decodes a growing sequence of ids piece by piece: push() returns the text that the new id
// completes, which is empty within a character. All results together are decode() of all ids,
// except that a decoder that uses the whole sequence gets only the last few tokens. Ids that
// a model has beyond its tokenizer's have no text.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}
  std::string push(int32_t id);
  std::string finish();

 private:
  std::string advance(bool is_last);

  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::vector<int32_t> ids_;  // the last ids whose text was returned, and all later ones
  size_t shown_ = 0;          // the number of ids whose text was returned
};

}  // namespace strata::text
