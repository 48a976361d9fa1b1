// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/recipe.h"
#include "kernels/activation.h"

// A model as data: units, segments and their parameters. Nothing here allocates weights or does
// I/O.
//
// Shape letters: B micro-batch rows, T sequence, N = B*T, C hidden, H heads, K key-value heads, D
// head size, F feed-forward, V vocabulary, L layers.
namespace strata::model {

enum class Norm : uint8_t { kRms, kLayer };
enum class Position : uint8_t { kRope, kLearned };
enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn, kLongRope };
// What the norms of q and k run over: each head, or all heads of a token.
enum class QkNorm : uint8_t { kNone, kHead, kProjection };

struct Rope {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position = 8192;
  double attention_factor = 1.0;  // of sine and cosine; yarn, longrope
  double beta_fast = 32.0;        // turns within the original positions, between which yarn blends
  double beta_slow = 1.0;
  bool truncate = true;  // the blend's ends are whole pairs
  int64_t rotary = 0;    // elements of a head that are turned, its first ones; 0: all
  // longrope: what each pair's frequency is divided by, for sequences up to the original positions
  // and for longer ones.
  std::vector<double> short_factor = {}, long_factor = {};

  bool operator==(const Rope&) const = default;
};

// What the blocks of a family are and no config.json says.
struct Block {
  bool pre_norm = true;    // of a branch's input
  bool post_norm = false;  // of a branch's output, before it is added to the residual stream
  QkNorm qk_norm = QkNorm::kNone;
  bool norm_offset = false;       // norms multiply with 1 + weight
  bool scaled_embedding = false;  // by sqrt(hidden), rounded to the weights' type
  bool gated = true;              // the MLP multiplies an activated and a plain projection

  bool operator==(const Block&) const = default;
};

// What one family of models is: every difference between families is a field, never a class.
struct Architecture {
  std::string model_type;  // as in config.json: "llama"
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;
  int64_t feed_forward = 0;
  int64_t vocabulary = 0;
  int64_t max_position = 0;
  int64_t window = 0;          // positions that attention looks back on, its own included; 0: all
  std::vector<char> windowed;  // by layer, whether it has the window; empty: all layers have it
  double norm_eps = 1e-5;
  Norm norm = Norm::kRms;
  kernels::Activation activation = kernels::Activation::kSilu;
  Position position = Position::kRope;
  Rope rope;
  std::optional<Rope> window_rope;  // of windowed layers, where it is another
  Block block;
  double score_scalar = 0;  // attention's scores are divided by its root; 0: by that of head_size
  double score_cap = 0;     // of attention's scores; 0: none
  double logit_cap = 0;     // of the head's logits; 0: none
  int64_t pad_token = -1;   // its row of the embedding gets no gradient from it as input; -1: none
  bool tied = false;        // the head reads the embedding's matrix
  bool attention_bias = false;  // of q, k and v
  bool output_bias = false;     // of attention's output
  bool mlp_bias = false;

  // False for segments outside of blocks, whose layer is -1.
  bool is_windowed(int layer) const {
    return window > 0 && layer >= 0 &&
           (windowed.empty() || windowed[static_cast<size_t>(layer)] != 0);
  }
  int64_t window_of(int layer) const { return is_windowed(layer) ? window : 0; }
  const Rope& rope_of(int layer) const {
    return window_rope && is_windowed(layer) ? *window_rope : rope;
  }
};

// What a parameter is to the segment that computes with it.
enum class ParameterRole : uint8_t {
  kOther,
  kNorm,
  kQuery,
  kKey,
  kValue,
  kOutput,
  kGate,
  kUp,
  kDown,
  kEmbedding,
  kHead,
  kQueryBias,
  kKeyBias,
  kValueBias,
  kOutputBias,
  kGateBias,
  kUpBias,
  kDownBias,
  kPostNorm,
  kQueryNorm,
  kKeyNorm,
  kNormBias,  // of LayerNorm
  kPosition,  // learned positions, a row each
};

// Whether a parameter is the weight of a norm.
inline bool is_norm(ParameterRole role) {
  return role == ParameterRole::kNorm || role == ParameterRole::kPostNorm ||
         role == ParameterRole::kQueryNorm || role == ParameterRole::kKeyNorm;
}

// Where a parameter lies in the user's files: a range of the rows of a stored tensor (all of them,
// as a rule), or of the columns of a stored matrix where the file has the transpose.
struct Storage {
  std::string tensor;          // its name in the safetensors
  std::vector<int64_t> shape;  // of the whole tensor
  int64_t first = 0;           // row of the tensor, or column where transposed
  bool transposed = false;
  int64_t first_input = 0;  // of each row: where a tensor slice has a part of its inputs
};

struct Parameter {
  std::string name;            // the tensor's; of a part of one "NAME[PART]"
  std::vector<int64_t> shape;  // row-major, as it is computed with
  Storage stored;
  int64_t numel = 0;
  int64_t room = 0;    // elements kept for it, where ranks have unequal slices; 0: numel
  int64_t offset = 0;  // elements from the start of its segment's flat buffer; a multiple of 64
  int group = 0;       // index into ModelSpec::groups
  bool frozen = false;
  bool whole = false;  // in a tensor slice: every rank has all of it
  // Of what a tensor slice has a part of: the element of the whole parameter that is the first
  // here, and the inputs of its rows (0: those of shape).
  int64_t whole_first = 0;
  int64_t whole_inputs = 0;
  ParameterRole role = ParameterRole::kOther;
};

// Options of a set of parameters. `decays` says whether weight decay applies (tensors of two and
// more dimensions by default).
struct ParameterGroup {
  std::string name;
  double lr_factor = 1.0;
  bool decays = true;
  std::optional<double> weight_decay = {};  // instead of the run's; nothing: the run's
  int given = 0;  // n: a caller gives its settings with each step, as group n - 1; 0: it does not
};

// A section of a pipeline begins with what is received, unless it has the embedding, and ends with
// what is sent, unless it has the head. These two have no parameters and compute nothing.
enum class SegmentKind : uint8_t {
  kEmbedding,
  kAttention,
  kMlp,
  kHead,
  kExternal,
  kReceived,
  kSent,
};

constexpr bool is_computed(SegmentKind kind) {
  return kind != SegmentKind::kReceived && kind != SegmentKind::kSent;
}

// A part of a unit with its own parameters and compute op. Its parameters lie in one flat buffer:
// trainable ones first, of these the whole ones of a tensor slice last, then frozen ones; each of
// the three is padded to a multiple of 4096 elements a shard.
struct Segment {
  SegmentKind kind = SegmentKind::kExternal;
  int unit = 0;
  int layer = -1;    // block index; -1 for embedding and head
  std::string name;  // "embed", "b0.attn", "b0.mlp", "head"
  std::vector<Parameter> parameters;
  int64_t trainable_numel = 0;  // padded
  int64_t frozen_numel = 0;     // padded
  int64_t whole_numel = 0;      // of trainable_numel, the last so many are Parameter::whole
  int64_t numel() const { return trainable_numel + frozen_numel; }
  int shares = -1;  // segment whose parameters it also reads (tied head: the embedding)
  // Segments below it whose outputs it reads: the first is the residual stream that it continues;
  // others (cross-attention: the encoder's last) end a stream of their own. Empty for an embedding,
  // and for a segment whose activations are a framework's own.
  std::vector<int> inputs = {};
  int backward_uses = 0;  // of an external segment: the uses of a micro-batch with its gradient
};

// Whether a parameter has whole rows of its stored matrix (columns where transposed), as writers of
// files expect; a tensor slice of a block's last matrices has not.
bool has_whole_rows(const Parameter& parameter);

// Element `element` of a parameter is this element of its stored tensor.
int64_t stored_index(const Parameter& parameter, int64_t element);

// Element `element` of a tensor slice's parameter is this element of the whole parameter.
int64_t whole_index(const Parameter& parameter, int64_t element);

// Elements from `element` on, up to `count`, that follow each other in the whole parameter too: all
// of them, or those of a row that is cut.
int64_t whole_run(const Parameter& parameter, int64_t element, int64_t count);

struct Unit {
  std::string name;           // "embed", "b0", "head"
  std::vector<int> segments;  // ascending
};

// Which part of every block a rank has: its heads, and its columns of the MLP; and its rows of the
// vocabulary. See tensor_slice.h.
struct TensorSlice {
  int rank = 0;
  int ranks = 1;
  bool cuts_vocabulary = false;  // embedding and head have the rows of own tokens alone
};

// The way of a pass through the ranks of a pipeline: `laps` times round them, with a section of the
// model on each. Where the head reads the embedding's matrix, the last rank has both: the pass
// begins there, with a section of the embedding alone.
struct Route {
  int ranks = 1;
  int laps = 1;
  bool embeds_on_last = false;
  int sections() const { return ranks * laps + (embeds_on_last ? 1 : 0); }
  int rank_of(int section) const { return (section + (embeds_on_last ? ranks - 1 : 0)) % ranks; }
};

// Units of a model that follow each other on one rank, with what it receives before them and sends
// behind them. Numbers behind the last are not of the section.
struct Section {
  int number = 0;  // on the route
  int first_unit = 0;
  int end_unit = 0;
  int first_segment = 0;
  int end_segment = 0;
  int whole_segment = 0;  // in the whole model: of the first that is neither received nor sent
};

// The sections of a model that a pipeline rank has. See stage.h.
struct Stage {
  int rank = 0;
  Route route;
  std::vector<Section> sections;  // ascending; empty for one rank
  // The number in the whole model of a segment that is neither received nor sent.
  int whole_segment(int segment) const;
};

// A use of external segments: they are read together in one pass of a micro-batch.
struct ExternalUse {
  std::vector<int> segments;  // distinct; the first names the use
  bool backward = false;      // adds to the gradients of all of them
  double flops = 0;           // what the caller computes; 0: it takes no time
};

struct ModelSpec {
  Architecture architecture;  // of the slice: its heads and its feed-forward size
  TensorSlice tensor;
  Stage stage;
  std::vector<Unit> units;
  std::vector<Segment> segments;
  std::vector<ParameterGroup> groups;
  std::vector<ExternalUse> uses;    // of external segments, in the order of a micro-batch
  int64_t parameter_count() const;  // true elements, without padding
};

// Sets every parameter's offset and every segment's padded sizes for `shard_count` ranks that share
// the state. Depends on nothing else, so a layout is the same for every budget.
void assign_offsets(ModelSpec& spec, int shard_count);

}  // namespace strata::model
