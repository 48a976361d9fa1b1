/* SPDX-License-Identifier: Apache-2.0
 * An MLP that learns y = sin(3 x), whose state Strata keeps: c_store [JSON] (docs/embedding.md). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strata.h>

enum { W = 128, LAYERS = 4, ROWS = 32, STEPS = 151 };
static float x[LAYERS + 1][ROWS][W], dx[LAYERS + 1][ROWS][W]; /* activations, their gradients */

static void check(strata_status status) {
  if (status != STRATA_OK) fprintf(stderr, "c_store: %s\n", strata_error_text()), exit(1);
}
static float uniform(void) { return 2 * (float)rand() / (float)RAND_MAX - 1; }
static int fill(void* context, int32_t plane, int32_t unit, int32_t tensor, int64_t first,
                int64_t count, float* values) {
  for (int64_t i = 0; i < count; ++i) values[i] = uniform() * sqrtf(3.0f / W);
  return (void)context, (void)plane, (void)unit, (void)tensor, (void)first, 0;
}

static void forward(const float* w, int l) { /* x[l + 1] = tanh(x[l] w^T) */
  for (int r = 0; r < ROWS; ++r)
    for (int o = 0; o < W; ++o) {
      float sum = dx[l][r][o] = 0;
      for (int i = 0; i < W; ++i) sum += x[l][r][i] * w[o * W + i];
      x[l + 1][r][o] = tanhf(sum);
    }
}

static void backward(const float* w, float* dw, int l) {
  for (int r = 0; r < ROWS; ++r)
    for (int o = 0; o < W; ++o) {
      const float d = dx[l + 1][r][o] * (1 - x[l + 1][r][o] * x[l + 1][r][o]);
      for (int i = 0; i < W; ++i) dw[o * W + i] += d * x[l][r][i], dx[l][r][i] += d * w[o * W + i];
    }
}

static double train_step(strata_store* store) {
  double loss = 0;
  strata_view view = {.struct_size = sizeof view};
  const strata_update update = {.struct_size = sizeof update, .lr = 2e-3};
  check(strata_store_begin(store));
  for (int i = 0; i < ROWS * W; ++i) x[0][i / W][i % W] = uniform();
  for (int l = 0; l < LAYERS; ++l, check(strata_store_release(store))) {
    check(strata_store_acquire(store, l, STRATA_FORWARD, &view));
    forward(view.weights, l);
  }
  for (int i = 0; i < ROWS * W; ++i) {
    const float error = x[LAYERS][i / W][i % W] - sinf(3 * x[0][i / W][i % W]);
    loss += error * error / (ROWS * W), dx[LAYERS][i / W][i % W] = 2 * error / ROWS;
  }
  for (int l = LAYERS; l-- > 0; check(strata_store_release(store))) {
    check(strata_store_acquire(store, l, STRATA_BACKWARD, &view));
    backward(view.weights, view.gradient, l);
  }
  check(strata_store_step(store, &update, NULL));
  return loss;
}

int main(int argc, char** argv) {
  const char* names[LAYERS] = {"layer0", "layer1", "layer2", "layer3"};
  const int64_t shape[] = {W, W};
  strata_store* store;
  double loss = 1;
  check(strata_store_open(argc > 1 ? argv[1] : "{\"recipe\": \"fp32\"}", NULL, &store));
  for (int l = 0; l < LAYERS; ++l) {
    strata_tensor w = {.struct_size = sizeof w, .name = names[l], .shape = shape, .rank = 2,
                       .dtype = STRATA_F32};
    strata_unit u = {.struct_size = sizeof u, .name = names[l], .tensors = &w, .tensor_count = 1};
    check(strata_store_add_unit(store, &u, NULL));
  }
  check(strata_store_load(store, &(strata_load){.struct_size = sizeof(strata_load), .fill = fill}));
  for (int step = 1; step <= STEPS; ++step) {
    loss = train_step(store);
    if (step % 50 == 1) printf("step %3d  loss %.4f\n", step, loss);
  }
  check(strata_store_close(store));
  return loss < 0.4 ? 0 : 2;
}
