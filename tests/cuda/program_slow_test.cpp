// SPDX-License-Identifier: Apache-2.0
// The program with --device cuda over a fake device: it trains, evaluates and generates there, says
// why a device cannot be used, and what fails under way leaves the last checkpoint whole.
#include "tests/cli/program.h"

#include <algorithm>
#include <regex>
#include <sstream>

#include "engine/base/clock.h"
#include "tests/cli/metrics_records.h"
#include "tests/cuda/fake_gpu.h"

namespace strata::cli::test {
namespace {

class CudaProgram : public testing::Test {
 protected:
  void SetUp() override {
    setenv("STRATA_PLUGIN_PATH", strata::test::FakeGpu::folder().c_str(), 1);
    setenv("XDG_CACHE_HOME", (sandbox_ / "cache").c_str(), 1);
    set_fake("");
    make_model(sandbox_, "model", {});
  }
  static void set_fake(const std::string& settings) {
    setenv("STRATA_FAKE_CUDA", ("pageable=0 " + settings).c_str(), 1);
  }

  Process strata(const Arguments& arguments) const {
    return Process(arguments, {.directory = sandbox_.path()});
  }
  static Arguments train(const std::string& out, const Arguments& more) {
    Arguments all = {"train", "--model",           "model",       "--data",  STRATA_TEXT, "--out",
                     out,     "--sequence-length", "32",          "--steps", "6",         "--lr",
                     "1e-3",  "--machine",         STRATA_MACHINE};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // What `strata ARGUMENTS` prints; it must end with `code`.
  std::string said(const Arguments& arguments, int code) const {
    Process process = strata(arguments);
    EXPECT_EQ(process.wait(), code) << process.out() << process.err();
    return process.out() + process.err();
  }
  // The hash on the line "state" of a run.
  std::string state_after(const std::string& out, const Arguments& more) const {
    return state_in(said(train(out, more), 0));
  }
  // The options with state on a drive and the least memory with which they are not refused.
  Arguments in_least_memory(Arguments options) const {
    options.insert(options.end(), {"--nvme", ".", "--offload", "nvme"});
    Arguments little = options;
    little.insert(little.end(), {"--host-memory", "1MiB", "--device-memory", "1MiB"});
    const std::string text = said(train("refused", little), 3);
    std::istringstream words(text.substr(text.rfind("the least that fits is ")));
    for (std::string word; words >> word;) {
      if (word != "--host-memory" && word != "--device-memory") continue;
      options.push_back(word);
      words >> word;
      options.push_back(word.substr(0, word.find_first_of(",")));
    }
    return options;
  }
  std::vector<double> losses_of(const std::string& out) const {
    std::vector<double> losses;
    std::ifstream file(sandbox_ / (out + "/metrics.jsonl"));
    for (std::string line; std::getline(file, line);) {
      const size_t at = line.find("\"loss\":");
      if (at != line.npos) losses.push_back(std::stod(line.substr(at + 7)));
    }
    return losses;
  }

  const Sandbox sandbox_;
};

#define EXPECT_SAYS(text, words) EXPECT_NE((text).find(words), std::string::npos) << (text)

// Copies from memory that is not pinned would fail.
TEST_F(CudaProgram, MeasuresTheGpuAndTheModelThereWithoutAProfile) {
  const Arguments gpu = {"--recipe", "bf16", "--device", "cuda"};
  Arguments measured = train("measured", gpu);
  const auto machine = std::find(measured.begin(), measured.end(), "--machine");
  ASSERT_NE(machine, measured.end());
  measured.erase(machine, machine + 2);
  const std::string text = said(measured, 0);
  EXPECT_SAYS(text, "machine: measured in a few seconds");
  EXPECT_EQ(state_in(text), state_after("given", gpu));
}

TEST_F(CudaProgram, TrainsAndEvaluates) {
  for (const std::string recipe : {"fp32", "bf16"}) {
    const Arguments here = {"--recipe", recipe, "--device", "cpu"};
    const Arguments gpu = {"--recipe", recipe, "--device", "cuda"};
    said(train("cpu-" + recipe, here), 0);
    const std::string state = state_after("gpu-" + recipe, gpu);
    const auto cpu_losses = losses_of("cpu-" + recipe), gpu_losses = losses_of("gpu-" + recipe);
    ASSERT_EQ(cpu_losses.size(), 6u);
    ASSERT_EQ(gpu_losses.size(), 6u);
    const double tolerance = recipe == "fp32" ? 1e-4 : 2e-2;
    for (size_t i = 0; i < gpu_losses.size(); ++i) {
      EXPECT_NEAR(gpu_losses[i], cpu_losses[i], tolerance * cpu_losses[i]) << recipe << i;
    }
    // In less device memory, with state on a drive, and with commands that run late: the same bits.
    set_fake("delay_us=200 seed=5");
    EXPECT_EQ(state_after("offloaded-" + recipe, in_least_memory(gpu)), state);
    set_fake("");
    for (const config::Json& record : metrics_of(sandbox_ / ("offloaded-" + recipe))) {
      double stall_s = 0;
      for (const config::JsonMember& one : record.find("stall_s")->members()) {
        stall_s += *one.value.number();
      }
      EXPECT_LE(stall_s, *record.find("step_s")->number());
    }
  }
  const Arguments eval = {"eval",   "--model",   "gpu-fp32/model",
                          "--data", STRATA_TEXT, "--sequence-length",
                          "32",     "--recipe",  "fp32"};
  Arguments eval_cpu = eval;
  eval_cpu.insert(eval_cpu.end(), {"--device", "cpu"});
  const std::string cpu_answer = said(eval_cpu, 0), gpu_answer = said(eval, 0);
  EXPECT_SAYS(cpu_answer, "loss ");
  EXPECT_SAYS(gpu_answer, cpu_answer.substr(0, 8));
}

// --device auto takes it so, too.
TEST_F(CudaProgram, AGpuInTheHostsMemoryNeedsNoOther) {
  const std::string state = state_after("own", {"--recipe", "bf16", "--device", "cuda"});
  EXPECT_SAYS(said(train("none", {"--device", "unified"}), 2), "(use --device cuda)");
  set_fake("unified=1 delay_us=200 seed=5");
  const std::string text = said(train("unified", {"--recipe", "bf16", "--device", "unified"}), 0);
  EXPECT_SAYS(text, "device: unified:0: Fake GPU 0, 8 GiB of the host's memory, compute 9.0");
  EXPECT_EQ(state_in(text), state);
  Arguments little = {"--recipe", "bf16", "--device",  "unified",
                      "--nvme",   ".",    "--offload", "nvme"};
  little.insert(little.end(), {"--host-memory", "1MiB"});
  const std::string refusal = said(train("refused", little), 3);
  const size_t at = refusal.rfind("the least that fits is --host-memory ") + 37;
  little.back() = refusal.substr(at, refusal.find_first_of(" ,)\n", at) - at);
  EXPECT_EQ(state_after("little", little), state);
  const Arguments ranks = {"--recipe", "bf16", "--device", "unified:0", "--ranks", "2"};
  EXPECT_EQ(state_after("two", ranks),
            state_after("two-own", {"--recipe", "bf16", "--device", "cuda:0", "--ranks", "2"}));
  EXPECT_SAYS(said({"bench", "kernels", "--device", "unified", "--seconds", "0.05",
                    "--device-memory", "1MiB"},
                   0),
              "unified:0: Fake GPU 0");
  const std::string loss = said({"eval", "--model", "unified/model", "--data", STRATA_TEXT,
                                 "--sequence-length", "32", "--recipe", "bf16"},
                                0);
  EXPECT_SAYS(loss, "loss ");
  EXPECT_SAYS(loss, "device: unified:0: Fake GPU 0");
  EXPECT_SAYS(said(train("none", {"--device", "unified", "--device-memory", "1GiB"}), 2),
              "--device-memory has no effect with --device unified");
}

// In fp32 and without chance, the texts are those of the CPU. Pieces of prompts and one prompt at a
// time give the same bits, in memory and with the weights read for each pass.
TEST_F(CudaProgram, Generates) {
  for (const std::string recipe : {"fp32", "bf16", "fp16"}) {
    SCOPED_TRACE(recipe);
    const auto generated = [&](const Arguments& more) {
      Arguments all = {"generate",
                       "--model",
                       "model",
                       "--prompt",
                       "The harbour at night",
                       "--prompt",
                       "A ship",
                       "--prompt",
                       "So",
                       "--max-new-tokens",
                       "8",
                       "--recipe",
                       recipe,
                       "--temperature",
                       "0"};
      all.insert(all.end(), more.begin(), more.end());
      Process process = strata(all);
      EXPECT_EQ(process.wait(), 0) << process.err();
      return process.out();
    };
    const std::string text = generated({"--device", "cuda:0"});
    EXPECT_SAYS(text, "The harbour at night");
    if (recipe == "fp32") {
      EXPECT_EQ(text, generated({"--device", "cpu"}));
    }
    EXPECT_EQ(generated({"--device", "cuda", "--micro-batch", "1"}), text);
    set_fake("delay_us=200 seed=5");
    EXPECT_EQ(generated({"--device", "cuda", "--micro-batch", "2"}), text);
    set_fake("");
  }
}

TEST_F(CudaProgram, WritesSamplesOfARun) {
  std::ofstream(sandbox_ / "prompts.txt") << "The harbour\n";
  const Arguments gpu = {"--device", "cuda"};
  const std::string state = state_after("plain", gpu);
  EXPECT_EQ(state_after("sampled", {"--device", "cuda", "--eval-every", "3", "--sample-prompts",
                                    "prompts.txt", "--sample-tokens", "4"}),
            state);
  std::ifstream metrics(sandbox_ / "sampled/metrics.jsonl");
  const std::string records(std::istreambuf_iterator<char>(metrics), {});
  EXPECT_SAYS(records, "\"samples\"");
}

TEST_F(CudaProgram, AutoIsAGpuThatWorksForOneRank) {
  const std::string gpu = "device: cuda:0: Fake GPU 0";
  const auto said_by = [&](const std::string& out, const Arguments& more, int code = 0) {
    Arguments all = {"train", "--model", "model", "--data", STRATA_TEXT,
                     "--out", out,       "--lr",  "1e-3",   "--sequence-length",
                     "32"};
    all.insert(all.end(), more.begin(), more.end());
    return said(all, code);
  };
  const auto is_on_gpu = [&](const std::string& text) { return text.find(gpu) != text.npos; };
  EXPECT_TRUE(is_on_gpu(said_by("auto", {"--steps", "2", "--device-memory", "1GiB"})));
  EXPECT_FALSE(is_on_gpu(said_by("cpu", {"--steps", "2", "--device", "cpu"})));
  const std::string of_ranks = said_by("ranks", {"--steps", "2", "--ranks", "2"});
  EXPECT_FALSE(is_on_gpu(of_ranks));
  EXPECT_SAYS(of_ranks, "auto is the CPU and not the GPU: of several ranks each would need one");
  EXPECT_FALSE(is_on_gpu(said_by("mesh", {"--steps", "2", "--mesh", "shard=2"})));
  EXPECT_FALSE(is_on_gpu(said(train("machine", {}), 0))) << "the file's figures are a CPU's";
  set_fake("driver=0");
  const std::string refused = said_by("none", {"--steps", "2"});
  EXPECT_SAYS(refused, "device: auto is the CPU and not the GPU: cuda: no GPU can be used");
  EXPECT_SAYS(said_by("memory", {"--steps", "2", "--device-memory", "1GiB"}, 2),
              "--device auto, the CPU of this machine");
  set_fake("");
  EXPECT_FALSE(is_on_gpu(said({"train", "--resume", "none", "--steps", "4", "--force"}, 0)))
      << "a run that began on the CPU stays there";
}

TEST_F(CudaProgram, MeasuresTheDeviceThatIsNamed) {
  set_fake("devices=2");
  Arguments second = {"train", "--model", "model",    "--data", STRATA_TEXT,
                      "--out", "second",  "--device", "cuda:1", "--sequence-length",
                      "32",    "--steps", "2"};
  const std::string text = said(second, 0);
  EXPECT_SAYS(text, "device: cuda:1: Fake GPU 1, 8 GiB, ");
  EXPECT_SAYS(text, "machine: measured");
}

// Of one mesh, ZeRO's stages and places of the state have the same bits, and so have processes. A
// pipeline has those of one rank.
TEST_F(CudaProgram, RanksShareAGpu) {
  const Arguments gpu = {"--device", "cuda:0", "--recipe", "fp32"};
  const auto with = [&](const Arguments& more) {
    Arguments all = gpu;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const std::string one = state_after("one", with({"--accumulate", "2"}));
  const auto expect_losses_of_one = [&](const std::string& run) {
    const auto losses = losses_of(run), wanted = losses_of("one");
    ASSERT_EQ(losses.size(), wanted.size());
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], wanted[i], 1e-5 * wanted[i]) << run << i;
    }
  };
  const std::string shards = state_after("shards", with({"--ranks", "2"}));
  expect_losses_of_one("shards");
  for (const std::string stage : {"0", "1", "2"}) {
    EXPECT_EQ(state_after("zero" + stage, with({"--ranks", "2", "--zero-stage", stage})), shards);
  }
  EXPECT_EQ(state_after("drive", in_least_memory(with({"--ranks", "2"}))), shards);
  const std::string tensor =
      state_after("tensor", with({"--ranks", "2", "--tensor-ranks", "2", "--accumulate", "2"}));
  expect_losses_of_one("tensor");
  const Arguments stages = with({"--ranks", "2", "--pipeline-ranks", "2", "--accumulate", "2"});
  EXPECT_EQ(state_after("stages", stages), one);
  EXPECT_EQ(state_after("stages-drive", in_least_memory(stages)), one);
  set_fake("delay_us=200 seed=3");
  EXPECT_EQ(state_after("late", with({"--ranks", "4", "--tensor-ranks", "2"})),
            state_after("drive4", in_least_memory(with({"--ranks", "4", "--tensor-ranks", "2"}))));
}

// The fake's NCCL exchanges between devices of one process.
TEST_F(CudaProgram, GpusOfRanksSendEachOtherMemory) {
  set_fake("devices=4 delay_us=100 seed=4");
  const Arguments meshes[] = {{"--ranks", "2", "--recipe", "bf16", "--reduce-dtype", "bf16"},
                              {"--ranks", "4", "--shard-ranks", "2", "--zero-stage", "2"},
                              {"--ranks", "2", "--tensor-ranks", "2", "--recipe", "bf16"},
                              {"--ranks", "2", "--context-ranks", "2"},
                              {"--ranks", "2", "--pipeline-ranks", "2", "--accumulate", "2"}};
  for (const Arguments& mesh : meshes) {
    SCOPED_TRACE(testing::PrintToString(mesh));
    Arguments direct = train("direct", {"--device", "cuda", "--force"});
    direct.insert(direct.end(), mesh.begin(), mesh.end());
    const std::string text = said(direct, 0);
    EXPECT_SAYS(text, "their devices send each other memory");
    Arguments by_host = mesh;
    by_host.insert(by_host.end(), {"--device", "cuda", "--force", "--device-exchange", "host"});
    EXPECT_EQ(state_in(text), state_after("by_host", by_host));
  }
  set_fake("devices=2 nccl=0");
  Arguments without = train("without", {"--device", "cuda", "--ranks", "2"});
  EXPECT_EQ(said(without, 0).find("send each other"), std::string::npos);
  without.insert(without.end(), {"--force", "--device-exchange", "direct"});
  EXPECT_SAYS(said(without, 2), "device-exchange: direct: some machine lacks NCCL 2.18 or later");
}

TEST_F(CudaProgram, RanksThatAreProcessesTakeTheGpuOfTheirNumber) {
  set_fake("devices=2 nccl=0");
  const std::string shards = state_after("shards", {"--device", "cuda:0", "--ranks", "2"});
  Arguments launched = {"launch", "--ranks", "2", "--"};
  const Arguments train_on_all = train("launched", {"--device", "cuda"});
  launched.insert(launched.end(), train_on_all.begin(), train_on_all.end());
  const std::string text = said(launched, 0);
  EXPECT_EQ(state_in(text), shards);
  EXPECT_SAYS(text, "device: cuda:0: Fake GPU 0");
  set_fake("");
  EXPECT_SAYS(said(train("missing", {"--device", "cuda", "--ranks", "2"}), 2),
              "device: cuda:1: this machine has one GPU, cuda:0 (give --device cuda:N with a "
              "smaller N, which its ranks share, or fewer ranks)");
  const std::string lost =
      said({"launch", "--ranks", "2", "--", "train", "--model", "model", "--data", STRATA_TEXT,
            "--out", "lost", "--device", "cuda", "--sequence-length", "32", "--steps", "2"},
           2);
  EXPECT_SAYS(lost, "device: cuda:1: this machine has one GPU");
}

TEST_F(CudaProgram, SaysWhyADeviceCannotBeUsed) {
  const Arguments gpu = {"--device", "cuda"};
  set_fake("driver=0");
  EXPECT_SAYS(said(train("none", gpu), 2),
              "device: cuda: no GPU can be used: cudaErrorInsufficientDriver");
  EXPECT_SAYS(said({"doctor"}, 0), "no GPU is used: cuda: no GPU can be used");
  set_fake("");
  EXPECT_SAYS(said(train("none", {"--device", "cuda:3"}), 2), "device: cuda:3: this machine has");
  EXPECT_SAYS(said({"doctor"}, 0), "gpu 0");
  EXPECT_SAYS(said({"doctor"}, 0), "Fake GPU 0, 8 GiB, compute 9.0, driver for CUDA 13.0");
  setenv("STRATA_PLUGIN_PATH", sandbox_.path().c_str(), 1);
  EXPECT_SAYS(said(train("none", gpu), 2), "device: cuda: libstrata_cuda.so is not in ");
  EXPECT_FALSE(std::filesystem::exists(sandbox_ / "none"));
}

TEST_F(CudaProgram, BenchMeasuresItsOpsAndItsLink) {
  const auto answer = [&](Arguments arguments) {
    arguments.insert(arguments.end(), {"--seconds", "0.05", "--device-memory", "4MiB", "--json"});
    Process process = strata(arguments);
    EXPECT_EQ(process.wait(), 0) << process.err();
    return config::Json::parse(process.out(), "the answer");
  };
  for (const std::string recipe : {"fp32", "bf16", "fp16"}) {
    SCOPED_TRACE(recipe);
    const config::Json found = answer({"bench", "kernels", "--device", "cuda", "--recipe", recipe});
    EXPECT_TRUE(found.find("device")->string().starts_with("cuda:0: Fake GPU 0, 8 GiB, "));
    EXPECT_GE(found.find("ops")->items().size(), 34u);
    for (const config::Json& op : found.find("ops")->items()) {
      const config::Json* rate = op.find("bytes_per_s");
      if (rate == nullptr) rate = op.find("flops_per_s");
      EXPECT_GT(*rate->number(), 1e4) << op.find("op")->string();
    }
  }
  EXPECT_SAYS(said({"bench", "kernels", "--seconds", "0.05", "--device-memory", "1MiB"}, 0),
              "device  cuda:0: Fake GPU 0");
  setenv("STRATA_FAKE_CUDA", "devices=2", 1);
  const config::Json link = answer({"bench", "link", "--device", "cuda:1"});
  EXPECT_TRUE(link.find("device")->string().starts_with("cuda:1: Fake GPU 1"));
  EXPECT_EQ(link.find("copies")->items().size(), 4u);
  set_fake("memory=65536000");
  EXPECT_SAYS(said({"bench", "kernels", "--device", "cuda", "--device-memory", "1GiB"}, 3),
              "bench kernels: copy within the device: its operands take ");
}

TEST_F(CudaProgram, AFailureLeavesTheLastCheckpointWhole) {
  const Arguments gpu = {"--device", "cuda", "--checkpoint-every", "1"};
  const std::string state = state_after("whole", gpu);
  const char* faults[] = {"kernel@550 delay_us=50", "copying@150", "lost@600", "launch@400",
                          "product@120"};
  for (const std::string fault : faults) {
    SCOPED_TRACE(fault);
    const std::string out = "run-" + fault.substr(0, fault.find('@'));
    set_fake(fault);
    const std::string text = said(train(out, gpu), 4);
    EXPECT_SAYS(text, "strata: error: cuda: ");
    EXPECT_SAYS(text, " on ");
    const std::filesystem::path checkpoints = sandbox_ / (out + "/checkpoints");
    EXPECT_FALSE(std::filesystem::is_empty(checkpoints)) << text;
    EXPECT_FALSE(std::filesystem::exists(checkpoints / "step-000006")) << text;
    set_fake("");
    EXPECT_EQ(state_after(out, {"--resume"}), state);
  }
}

// In the middle of a step, with state on the GPU and on a drive.
TEST_F(CudaProgram, AKernelThatNeverEndsEndsTheRunWithinTheDeadline) {
  Arguments gpu = {"--device", "cuda", "--checkpoint-every", "1", "--io-deadline", "2"};
  const std::string state = state_after("whole", gpu);
  for (const bool on_drive : {false, true}) {
    const std::string out = on_drive ? "drive" : "device";
    if (on_drive) gpu = in_least_memory(gpu);
    set_fake("hang@550");
    const double begin_s = now_s();
    const std::string text = said(train(out, gpu), 4);
    EXPECT_LT(now_s() - begin_s, 2 + 30) << "what precedes it, the deadline, and a busy machine";
    EXPECT_TRUE(std::regex_search(
        text, std::regex("error: cuda: [a-z]+ [a-z0-9.]+ on [a-z]+: not done after 2 s")))
        << text;
    const std::filesystem::path checkpoints = sandbox_ / (out + "/checkpoints");
    EXPECT_FALSE(std::filesystem::is_empty(checkpoints)) << text;
    EXPECT_FALSE(std::filesystem::exists(checkpoints / "step-000006")) << text;
    set_fake("");
    EXPECT_EQ(state_after(out, {"--resume"}), state);
  }
}

// The model is measured on the GPU before there is a plan.
TEST_F(CudaProgram, AKernelThatNeverEndsWhileItIsMeasuredEndsTheRunToo) {
  set_fake("hang@8");
  Arguments measured = train("measured", {"--device", "cuda", "--io-deadline", "1"});
  const auto machine = std::find(measured.begin(), measured.end(), "--machine");
  measured.erase(machine, machine + 2);
  EXPECT_SAYS(said(measured, 4), "error: wait for: the device that is measured: no answer for 1.");
}

}  // namespace
}  // namespace strata::cli::test
