// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>

#include "engine/plan/builder_piece.h"

namespace strata::plan {

// What the caller gives and gets: values that a host op copies, and that a discrete device gets and
// gives over the link.
class ExchangePath : BuilderPiece {
 public:
  explicit ExchangePath(Building& building) : BuilderPiece(building) {}

  // All values of the kinds, in one op and one transfer.
  void take_inputs(std::initializer_list<ValueKind> kinds, int micro_batches);
  void give_results(ValueKind kind, int micro_batches);
  void take_decision();  // the first: how many updates the state has seen

  // Accesses of the open op
  void read_given(ValueKind kind, int index);
  void write_result(ValueKind kind, int index);
  // What says where the tokens of an attention segment are: the table that turns queries and keys,
  // and with documents where these start, or with a cache of which text a token is.
  void read_order(int segment, int micro_batch);
};

}  // namespace strata::plan
