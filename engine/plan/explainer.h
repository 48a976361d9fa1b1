// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/model/spec.h"
#include "engine/plan/plan.h"

// A plan as text, for people, golden files and diffs. The text depends only on the plan.
namespace strata::plan {

// Explains one program with one line for each op. Repetitions that differ only in the micro-batch
// and have no further waits are one line. The text begins with the slots, as page+pages of their
// arena.
//
//   O1     ? optimize  embed    hi,lo,m,v+0 > +u  w1 s1 g0- u > w1 s1  | R1 S1
//   C13,16   recompute b1.attn  mb0-1 hi+u        w6 x2 > i3 x3 k      | R7
//
// Lane and count (C compute, O optimizer, U upload, D download, R read_weights, S read_state, W
// write, N comm, I comm_inner, T comm_stage, P update); `?` predicated; kind; segment and chunks;
// micro-batches and planes with their generation; slots read > written; waits, where 'C2 is all but
// the last 2 ops of that lane in the step before. Slots: w weights, s the rest of the state, and by
// segment g gradient (- consumed, + summed into), x output, d its gradient (of either also the rows
// of all tensor ranks), i interior, b sum over tensor ranks, a keys and values of context ranks, or
// scores, heads before their norms or sums of these of tensor ranks, c cache; k workspace,
// t tokens, targets or positions, r position table, l losses or logits, n norm partials, u
// decision. A slot in device memory has a *.
std::string explain(const Plan& plan, const model::ModelSpec& spec, ProgramName name);

// Bytes by tier and purpose, from the ledger, with use and budget of each tier.
std::string summary(const Plan& plan);

}  // namespace strata::plan
