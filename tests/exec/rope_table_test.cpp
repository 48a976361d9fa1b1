// SPDX-License-Identifier: Apache-2.0
// Cosine and sine of each scaling equal what LlamaRotaryEmbedding of Transformers 5 makes, heads of
// 16: a near position, where the frequencies show, and a far one.
#include "engine/exec/rope_table.h"

#include <gtest/gtest.h>

#include <array>

namespace strata::exec {
namespace {

using Row = std::array<float, 8>;

struct RopeCase {
  const char* name;
  model::Rope rope;
  Row near_cos, near_sin;  // position 1
  Row far_cos, far_sin;    // position 777
};

const RopeCase kCases[] = {
    {"yarn",
     {.scaling = model::RopeScaling::kYarn,
      .factor = 4.0,
      .original_max_position = 64,
      .attention_factor = 1.138629436111989},
     {0.61520416f, 1.10675538f, 1.13720644f, 1.13859391f, 1.13862586f, 1.13862908f, 1.13862944f,
      1.13862944f},
     {0.95812362f, 0.26752508f, 0.05690775f, 0.00900156f, 0.00284657f, 9.00165585e-4f,
      2.84657377e-4f, 9.00165687e-5f},
     {-0.58948916f, -0.54444134f, 0.46419418f, 1.12741578f, -0.41355395f, 0.93047994f, 1.11721492f,
      1.13648188f},
     {-0.97415578f, 1.00003028f, 1.03971183f, -0.15940742f, 1.06087232f, 0.65626520f, 0.21979044f,
      0.06989890f}},
    {"yarn as told",
     {.theta = 500.0,
      .scaling = model::RopeScaling::kYarn,
      .factor = 8.0,
      .original_max_position = 256,
      .attention_factor = 1.2,
      .beta_fast = 16,
      .beta_slow = 2,
      .truncate = false},
     {0.64836282f, 1.07533586f, 1.18535388f, 1.19903386f, 1.19998133f, 1.19999611f, 1.19999921f,
      1.19999993f},
     {1.00976515f, 0.53259075f, 0.18691294f, 0.04814658f, 0.00670817f, 0.00308485f, 0.00141861f,
      6.52367831e-4f},
     {-0.62126184f, 0.81178713f, -0.64715695f, 1.16767085f, -0.43262574f, -0.49658656f, 0.72836632f,
      1.09452534f},
     {-1.02666152f, -0.88374305f, 1.01053846f, -0.27666762f, -1.11930120f, 1.09242940f, 0.95366794f,
      0.49194977f}},
    {"linear",
     {.scaling = model::RopeScaling::kLinear, .factor = 3.0},
     {0.94495696f, 0.99444956f, 0.99944448f, 0.99994445f, 0.99999446f, 0.99999946f, 0.99999994f,
      1.0f},
     {0.32719472f, 0.10521416f, 0.03332716f, 0.01054073f, 0.00333333f, 0.00105409f, 3.33333359e-4f,
      1.05409265e-4f},
     {0.18040080f, 0.97555071f, 0.71981519f, -0.33001307f, -0.85169095f, 0.68293011f, 0.96664655f,
      0.99664783f},
     {0.98359317f, 0.21977444f, 0.69416577f, 0.94397640f, 0.52404439f, 0.73048371f, 0.25611407f,
      0.08181146f}},
    {"llama3",
     {.theta = 1000.0,
      .scaling = model::RopeScaling::kLlama3,
      .factor = 4.0,
      .original_max_position = 48},
     {0.54030234f, 0.94287920f, 0.99817675f, 0.99982429f, 0.99996877f, 0.99999446f, 0.99999905f,
      0.99999982f},
     {0.84147096f, 0.33313483f, 0.06035835f, 0.01874625f, 0.00790561f, 0.00333380f, 0.00140585f,
      5.92843397e-4f},
     {-0.51771820f, 0.99999159f, -0.98067117f, -0.41644111f, 0.99015158f, -0.85188240f, 0.46040231f,
      0.89576846f},
     {-0.85555118f, -0.00410393f, 0.19566315f, 0.90916270f, -0.13999939f, 0.52373308f, 0.88771039f,
      0.44452092f}},
};

TEST(RopeTable, EveryScalingEqualsThatOfTransformers) {
  // A frequency's last bit, 6e-8, is 5e-5 of an angle at position 777.
  constexpr float kNear = 2e-7f, kFar = 1e-4f;
  for (const RopeCase& one : kCases) {
    const std::vector<float> table = rope_values(one.rope, 16, 778);
    const float* cos = table.data();
    const float* sin = cos + 778 * 8;
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_NEAR(cos[8 + i], one.near_cos[i], kNear) << one.name << " " << i;
      EXPECT_NEAR(sin[8 + i], one.near_sin[i], kNear) << one.name << " " << i;
      EXPECT_NEAR(cos[777 * 8 + i], one.far_cos[i], kFar) << one.name << " " << i;
      EXPECT_NEAR(sin[777 * 8 + i], one.far_sin[i], kFar) << one.name << " " << i;
    }
  }
}

}  // namespace
}  // namespace strata::exec
