// SPDX-License-Identifier: Apache-2.0
#include "engine/session/shared_planes.h"

#include <vector>

namespace strata::session {
namespace {

// What a rank says of the values that it sends next.
struct Piece {
  int32_t segment = -1;  // after the last one
  int32_t parameter = 0;
  int64_t first = 0;
  int64_t count = 0;
};

void send_own(Live& live, const model::ModelSpec& spec, Plane plane,
              const PlaneSink::Visitor& visitor, comm::Group& group) {
  const PlaneSink::Visitor pass_on = [&](int segment, int parameter, int64_t first,
                                         std::span<const float> values) {
    Piece piece = {segment, parameter, first, std::ssize(values)};
    group.broadcast(&piece, sizeof(piece), group.rank());
    group.broadcast(const_cast<float*>(values.data()), std::ssize(values) * 4, group.rank());
    visitor(segment, parameter, first, values);
  };
  PlaneSink sink(spec, plane, pass_on);
  live.stream(sink);
  Piece end;
  group.broadcast(&end, sizeof(end), group.rank());
}

void receive_from(int rank, const PlaneSink::Visitor& visitor, comm::Group& group) {
  std::vector<float> values;
  for (;;) {
    Piece piece;
    group.broadcast(&piece, sizeof(piece), rank);
    if (piece.segment < 0) return;
    values.resize(static_cast<size_t>(piece.count));
    group.broadcast(values.data(), piece.count * 4, rank);
    visitor(piece.segment, piece.parameter, piece.first, values);
  }
}

}  // namespace

void visit_plane(Live& live, const train::RunPlan& run, Plane plane,
                 const PlaneSink::Visitor& visitor, comm::Group* group) {
  if (group == nullptr) {
    PlaneSink sink(*run.spec, plane, visitor);
    live.stream(sink);
    return;
  }
  live.drain();
  plan::Mesh mesh = run.ranks.front().mesh;
  for (int rank = 0; rank < group->size(); ++rank) {
    mesh.rank = rank;
    if (!mesh.saves()) continue;
    if (rank == group->rank()) {
      send_own(live, *run.spec, plane, visitor, *group);
    } else {
      receive_from(rank, visitor, *group);
    }
  }
}

}  // namespace strata::session
