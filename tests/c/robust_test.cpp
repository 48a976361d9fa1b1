// SPDX-License-Identifier: Apache-2.0
// What a caller of the C API does wrong is a status and a text, and changes nothing: handles,
// order, sizes, threads and processes.
#include <sys/wait.h>

#include <thread>

#include "tests/c/c_fixture.h"

namespace strata::test {
namespace {

TEST_F(CApi, HandlesThatAreNotOpenAreRefused) {
  strata_store* store = loaded(options());
  expect_refused(strata_store_begin(nullptr), STRATA_ERROR_HANDLE, "null");
  int other = 0;
  expect_refused(strata_store_begin(reinterpret_cast<strata_store*>(&other)), STRATA_ERROR_HANDLE,
                 "not a handle");
  expect_refused(strata_train_load(reinterpret_cast<strata_train*>(store), nullptr),
                 STRATA_ERROR_HANDLE, "strata_store");
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
  expect_refused(strata_store_begin(store), STRATA_ERROR_HANDLE, "closed");
  expect_refused(strata_store_close(store), STRATA_ERROR_HANDLE, "closed");
  EXPECT_EQ(strata_store_close(nullptr), STRATA_OK);
  strata_store* next = open(options());
  EXPECT_NE(next, store);  // a closed handle never becomes an open one
  EXPECT_EQ(strata_store_close(next), STRATA_OK);
}

TEST_F(CApi, CallsOutOfTurnAreRefusedAndChangeNothing) {
  auto view = sized<strata_view>();
  auto update = sized<strata_update>();
  auto load = sized<strata_load>();
  load.fill = fill;
  strata_store* store = nullptr;
  ASSERT_EQ(strata_store_open(options().c_str(), nullptr, &store), STRATA_OK);
  expect_refused(strata_store_load(store, &load), STRATA_ERROR_CONFIG,
                 "units: no unit is declared");
  expect_refused(strata_store_begin(store), STRATA_ERROR_USAGE, "load");
  add_units(store);
  auto info = sized<strata_tensor_info>();
  expect_refused(strata_store_tensor(store, 0, 0, &info), STRATA_ERROR_USAGE, "plan");
  ASSERT_EQ(strata_store_load(store, &load), STRATA_OK);
  auto unit = sized<strata_unit>();
  unit.name = "late";
  expect_refused(strata_store_add_unit(store, &unit, nullptr), STRATA_ERROR_USAGE,
                 "before order, plan and load");
  expect_refused(strata_store_release(store), STRATA_ERROR_USAGE, "acquire");
  expect_refused(strata_store_discard(store), STRATA_ERROR_USAGE, "begin");
  expect_refused(strata_store_step(store, &update, nullptr), STRATA_ERROR_USAGE, "begin");
  expect_refused(strata_store_acquire(store, 0, STRATA_FORWARD, &view), STRATA_ERROR_USAGE,
                 "begin");
  ASSERT_EQ(strata_store_begin(store), STRATA_OK);
  expect_refused(strata_store_begin(store), STRATA_ERROR_USAGE, "begun");
  expect_refused(strata_store_acquire(store, 1, STRATA_FORWARD, &view), STRATA_ERROR_CONFIG,
                 "acquire: forward of mid");
  expect_refused(strata_store_acquire(store, 0, 7, &view), STRATA_ERROR_USAGE, "pass 7");
  ASSERT_EQ(strata_store_acquire(store, 0, STRATA_FORWARD, &view), STRATA_OK);
  expect_refused(strata_store_acquire(store, 0, STRATA_FORWARD, &view), STRATA_ERROR_USAGE,
                 "release");
  const float value = 1;
  expect_refused(strata_store_add_gradient(store, 0, 0, 1, STRATA_F32, &value, 1),
                 STRATA_ERROR_USAGE, "backward");
  expect_refused(strata_store_step(store, &update, nullptr), STRATA_ERROR_USAGE, "passes");
  expect_refused(strata_store_save(store, directory_.c_str(), nullptr), STRATA_ERROR_USAGE, "end");
  auto statistics = sized<strata_statistics>();
  expect_refused(strata_store_statistics(store, &statistics), STRATA_ERROR_USAGE, "end");
  EXPECT_EQ(strata_store_discard(store), STRATA_OK);

  strata_store* plain = loaded(options());
  EXPECT_EQ(step(store).grad_norm, step(plain).grad_norm);
  EXPECT_EQ(state(store), state(plain));
  EXPECT_EQ(strata_store_begin(store), STRATA_OK);
  EXPECT_EQ(strata_store_close(store), STRATA_OK);  // in the middle of a step
  EXPECT_EQ(strata_store_close(plain), STRATA_OK);
}

TEST_F(CApi, StructsOfAnotherSizeAreRefused) {
  strata_store* store = loaded(options());
  strata_step_result result = {};
  auto update = sized<strata_update>();
  ASSERT_EQ(strata_store_begin(store), STRATA_OK);
  passes(store);
  expect_refused(strata_store_step(store, &update, &result), STRATA_ERROR_CONFIG, "struct_size");
  update.struct_size = 8;
  expect_refused(strata_store_step(store, &update, nullptr), STRATA_ERROR_CONFIG, "struct_size");
  update.struct_size = SIZE_MAX;
  expect_refused(strata_store_step(store, &update, nullptr), STRATA_ERROR_CONFIG, "struct_size");
  expect_refused(strata_store_step(store, nullptr, nullptr), STRATA_ERROR_USAGE, "update");
  // A newer caller's struct, with members that this library does not know.
  struct {
    strata_update known;
    int64_t later;
  } newer = {sized<strata_update>(), 1};
  newer.known.struct_size = sizeof newer;
  expect_refused(strata_store_step(store, &newer.known, nullptr), STRATA_ERROR_CONFIG, "newer");
  newer.later = 0;
  EXPECT_EQ(strata_store_step(store, &newer.known, nullptr), STRATA_OK) << text();
  // Arguments and results of all calls, and items of arrays.
  const auto refused = [](strata_status status) {
    expect_refused(status, STRATA_ERROR_CONFIG, "struct_size is 0");
  };
  strata_plan plan = {};
  strata_tensor_info info = {};
  strata_view view = {};
  strata_statistics statistics = {};
  strata_load load = {};
  refused(strata_store_plan(store, &plan));
  refused(strata_store_tensor(store, 0, 0, &info));
  refused(strata_store_acquire(store, 0, STRATA_FORWARD, &view));
  refused(strata_store_statistics(store, &statistics));
  refused(strata_store_load(store, &load));
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

TEST_F(CApi, UnitsThatCannotBeAreRefusedByName) {
  strata_store* store = nullptr;
  ASSERT_EQ(strata_store_open(options().c_str(), nullptr, &store), STRATA_OK);
  const int64_t shape[] = {4, -3};
  auto tensor = sized<strata_tensor>();
  auto unit = sized<strata_unit>();
  const auto refused = [&](const char* words) {
    expect_refused(strata_store_add_unit(store, &unit, nullptr), STRATA_ERROR_CONFIG, words);
  };
  refused("no name");
  unit.name = "layer";
  refused("units: layer: no tensors");
  unit.tensor_count = 1;
  expect_refused(strata_store_add_unit(store, &unit, nullptr), STRATA_ERROR_USAGE, "tensors");
  unit.tensors = &tensor;
  refused("has no name");
  tensor.name = "we\xc3ight";
  refused("layer: tensor 0: byte 2");
  unit.name = "\xff";
  refused("unit 0: byte 0");
  unit.name = "layer";
  tensor.name = "weight";
  tensor.rank = 2;
  expect_refused(strata_store_add_unit(store, &unit, nullptr), STRATA_ERROR_USAGE, "shape");
  tensor.shape = shape;
  refused("layer: weight: size -3");
  tensor.rank = 65;
  refused("rank 65");
  tensor.rank = 1;
  tensor.dtype = STRATA_BF16;
  refused("recipe");
  tensor.dtype = STRATA_F32;
  EXPECT_EQ(strata_store_add_unit(store, &unit, nullptr), STRATA_OK) << text();
  refused("add_unit: layer: another unit has this name");
  unit.name = "other";
  refused("other: weight: another tensor has this name");
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
  for (const char* json : {"{", "[]", "{\"recipe\": \"fp8\"}", "{\"model\": \"x\"}"}) {
    EXPECT_NE(strata_store_open(json, nullptr, &store), STRATA_OK) << json;
    EXPECT_EQ(store, nullptr);
  }
  EXPECT_EQ(strata_store_open("{}", nullptr, nullptr), STRATA_ERROR_USAGE);
  expect_refused(strata_store_open("{\"plugins\": 1}", nullptr, &store), STRATA_ERROR_USAGE,
                 "plugin_path");
}

TEST_F(CApi, TextsBelongToTheThreadThatFailed) {
  EXPECT_EQ(strata_store_begin(nullptr), STRATA_ERROR_HANDLE);
  const std::string mine = text();
  std::thread([] {
    EXPECT_EQ(text(), "");
    EXPECT_EQ(strata_train_load(nullptr, nullptr), STRATA_ERROR_HANDLE);
    EXPECT_NE(text().find("train_load"), std::string::npos);
  }).join();
  EXPECT_EQ(text(), mine);
}

TEST_F(CApi, AnyThreadMayCallAndTwoAtOnceAreRefused) {
  strata_store* store = loaded(options());
  std::thread([&] { step(store); }).join();
  struct Context {
    strata_store* store;
    strata_status status;
    std::string text;
  } context = {store, STRATA_OK, ""};
  const auto visit = [](void* at, int32_t, int32_t, int32_t, int64_t, int64_t, const float*) {
    auto& to = *static_cast<Context*>(at);
    to.status = strata_store_begin(to.store);
    to.text = text();
    return 0;
  };
  EXPECT_EQ(strata_store_read(store, STRATA_WEIGHTS, visit, &context), STRATA_OK) << text();
  EXPECT_EQ(context.status, STRATA_ERROR_BUSY);
  EXPECT_NE(context.text.find("running"), std::string::npos) << context.text;
  EXPECT_EQ(step(store).step, 2);
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

TEST_F(CApi, StoresShareNothing) {
  strata_store* first = loaded(options());
  strata_store* second = loaded(options(on_drive()));
  ASSERT_EQ(strata_store_begin(first), STRATA_OK);
  ASSERT_EQ(strata_store_begin(second), STRATA_OK);
  acquire(first, 0, STRATA_FORWARD);
  EXPECT_EQ(strata_store_discard(second), STRATA_OK);
  EXPECT_EQ(strata_store_close(second), STRATA_OK);
  EXPECT_EQ(strata_store_release(first), STRATA_OK);
  EXPECT_EQ(strata_store_discard(first), STRATA_OK);
  EXPECT_EQ(step(first).step, 1);
  EXPECT_EQ(strata_store_close(first), STRATA_OK);
}

TEST_F(CApi, AForkedProcessIsRefusedAndEnds) {
  strata_store* store = loaded(options());
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = strata_store_begin(store) == STRATA_ERROR_FORKED &&
                         text().find("exec") != std::string::npos &&
                         strata_store_close(store) == STRATA_ERROR_FORKED &&
                         strata_store_open("{}", nullptr, &store) == STRATA_ERROR_FORKED;
    _exit(refused ? 0 : 1);
  }
  int ended = 0;
  ASSERT_EQ(waitpid(child, &ended, 0), child);
  EXPECT_EQ(WIFEXITED(ended) ? WEXITSTATUS(ended) : -1, 0);
  EXPECT_EQ(step(store).step, 1);
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

TEST_F(CApi, StatusesHaveNames) {
  EXPECT_STREQ(strata_status_name(STRATA_OK), "STRATA_OK");
  EXPECT_STREQ(strata_status_name(STRATA_ERROR_INTERNAL), "STRATA_ERROR_INTERNAL");
  EXPECT_STREQ(strata_status_name(-1), "unknown status");
  EXPECT_STREQ(strata_status_name(99), "unknown status");
  EXPECT_STREQ(strata_version(), STRATA_VERSION);
}

}  // namespace
}  // namespace strata::test
