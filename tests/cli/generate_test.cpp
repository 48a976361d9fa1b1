// SPDX-License-Identifier: Apache-2.0
// strata generate: several texts, streamed, with stop strings, in memory and beyond it.
#include <csignal>

#include "engine/config/json.h"
#include "tests/cli/mistake.h"
#include "tests/cli/program.h"

namespace strata::cli::test {
namespace {

class Generate : public testing::Test {
 protected:
  void SetUp() override { make_model(sandbox_, "model", {}); }

  static Arguments with(const Arguments& more) {
    Arguments all = {"generate", "--model", "model"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string run(const Arguments& more) {
    Process process(with(more), {.directory = sandbox_.path()});
    EXPECT_EQ(process.wait(), 0) << process.err();
    err_ = process.err();
    return process.out();
  }
  std::string refused(const Arguments& more, int code) {
    Process process(with(more), {.directory = sandbox_.path()});
    EXPECT_EQ(process.wait(), code) << process.out();
    return process.err();
  }
  std::vector<config::Json> lines(const std::string& out) {
    std::vector<config::Json> objects;
    std::istringstream stream(out);
    for (std::string line; std::getline(stream, line);) {
      objects.push_back(config::Json::parse(line, "output"));
    }
    return objects;
  }

  void set_config(const std::string& name, const config::Json& value) {
    const std::string path = sandbox_ / "model/config.json";
    config::Json config = config::Json::parse(read_text(path), path);
    config.set(name, value);
    write_text(path, config.dump());
  }

  const Sandbox sandbox_;
  std::string err_;
};

TEST_F(Generate, IsSeeded) {
  const auto text = [&](const char* seed) {
    return run({"--prompt", "The harbour", "--max-new-tokens", "8", "--seed", seed});
  };
  const std::string first = text("1");
  EXPECT_EQ(first.rfind("The harbour", 0), 0u) << first;
  EXPECT_EQ(text("1"), first);
  EXPECT_NE(text("2"), first);
}

TEST_F(Generate, ATextIsTheSameAmongAnyOthersAndInAnyMemory) {
  const Arguments prompts = {
      "--prompt", "The harbour", "--prompt",         "",   "--prompt", "A ship of the",
      "--prompt", "So",          "--max-new-tokens", "12", "--json"};
  const auto more = [&](const Arguments& arguments) {
    Arguments all = prompts;
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run(all);
  };
  const std::string all = run(prompts);
  ASSERT_EQ(lines(all).size(), 4u) << all;
  EXPECT_EQ(more({"--micro-batch", "1"}), all);
  EXPECT_EQ(more({"--micro-batch", "3"}), all);
  EXPECT_EQ(more({"--threads", "1"}), all);
  EXPECT_EQ(more({"--offload", "none"}), all);
  EXPECT_EQ(more({"--device", "emulated"}), all);
  write_text(sandbox_ / "prompts.jsonl",
             "{\"prompt\": \"The harbour\"}\n{\"prompt\": \"\"}\n"
             "{\"prompt\": \"A ship of the\", \"other\": 1}\n{\"prompt\": \"So\"}\n");
  EXPECT_EQ(run({"--prompts-file", "prompts.jsonl", "--max-new-tokens", "12", "--json"}), all);
}

TEST_F(Generate, SeveralTextsArePrintedInTheirOrder) {
  write_text(sandbox_ / "prompts.txt", "The harbour\n\nA ship\n");
  const std::string out = run({"--prompts-file", "prompts.txt", "--max-new-tokens", "3"});
  EXPECT_EQ(out.rfind("--- 1 of 2 ---\nThe harbour", 0), 0u) << out;
  EXPECT_NE(out.find("\n--- 2 of 2 ---\nA ship"), std::string::npos) << out;
}

TEST_F(Generate, APromptHasNoByteOrderMarkAndNoLineEnd) {
  write_text(sandbox_ / "marked.txt", "\xEF\xBB\xBFThe harbour\r\n");
  const Arguments how = {"--max-new-tokens", "3", "--json"};
  Arguments named = {"--prompt", "The harbour"}, filed = {"--prompts-file", "marked.txt"};
  named.insert(named.end(), how.begin(), how.end());
  filed.insert(filed.end(), how.begin(), how.end());
  const std::string expected = run(named);
  EXPECT_EQ(run(filed), expected);
  Process piped(with(how), {.directory = sandbox_.path(),
                            .wrap = {"bash", "-c", "\"$@\" < marked.txt", "bash"}});
  EXPECT_EQ(piped.wait(), 0) << piped.err();
  EXPECT_EQ(piped.out(), expected);
}

TEST_F(Generate, AStopTextEndsAText) {
  const Arguments greedy = {"--prompt",         "A",  "--temperature", "0",
                            "--max-new-tokens", "24", "--json"};
  const std::string text = lines(run(greedy))[0].find("text")->string();
  ASSERT_GT(text.size(), 8u);
  const std::string stop = text.substr(5, 2);
  Arguments stopped = greedy;
  stopped.insert(stopped.end(), {"--stop", "never written", "--stop", stop});
  const config::Json short_one = lines(run(stopped))[0];
  EXPECT_EQ(short_one.find("text")->string(), text.substr(0, text.find(stop, 1)));
  EXPECT_EQ(short_one.find("end")->string(), "stop");
}

// Each id is in one of two lists, so one of the lists ends a text at its first token, and the other
// does not.
TEST_F(Generate, AnyOfTheModelsEndTokensEndsAText) {
  const Arguments greedy = {"--prompt",         "A",  "--temperature", "0",
                            "--max-new-tokens", "24", "--json"};
  const std::string whole = lines(run(greedy))[0].find("text")->string();
  EXPECT_EQ(err_, "");
  std::vector<std::string> texts;
  for (const int64_t first : {0, 1}) {
    config::Json ids = config::Json::array();
    for (int64_t id = 298 + first; id >= 0; id -= 2) ids.push_back(id);
    config::Json file = config::Json::object();
    file.set("eos_token_id", ids);
    write_text(sandbox_ / "model/generation_config.json", file.dump());
    const config::Json text = lines(run(greedy))[0];
    EXPECT_NE(err_.find("the model also ends texts with tokens " + std::to_string(first)),
              std::string::npos)
        << err_;
    texts.push_back(text.find("text")->string());
    EXPECT_EQ(whole.rfind(texts.back(), 0), 0u) << texts.back();
    const bool is_whole = text.find("new_tokens")->int64() == 24;
    EXPECT_EQ(text.find("end")->string(), is_whole ? "length" : "end");
  }
  EXPECT_TRUE((texts[0] == "A") != (texts[1] == "A")) << texts[0] << " | " << texts[1];
}

TEST_F(Generate, TheModelsOwnSettingsAreDefaults) {
  const Arguments prompt = {"--prompt", "A", "--json"};
  const auto text = [&](const Arguments& more) {
    Arguments all = prompt;
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  };
  const std::string greedy = text({"--temperature", "0", "--max-new-tokens", "9"});
  const std::string hot = text({"--temperature", "3", "--max-new-tokens", "9"});
  const std::string path = sandbox_ / "model/generation_config.json";
  write_text(path, R"({"do_sample": false, "max_new_tokens": 9, "temperature": 1.0})");
  EXPECT_EQ(text({}), greedy);
  EXPECT_NE(err_.find("generation_config.json sets temperature 0, max-new-tokens 9"),
            std::string::npos)
      << err_;
  EXPECT_EQ(text({"--temperature", "3"}), hot);
  EXPECT_NE(refused({"--top-k", "3"}, kUsage).find("--top-k has no effect"), std::string::npos);
  write_text(path, R"({"eos_token_id": "two"})");
  EXPECT_NE(refused({}, kUsage).find("generation_config.json: eos_token_id is the string"),
            std::string::npos);
}

TEST_F(Generate, ATextEndsAtTheLastPosition) {
  const config::Json text = lines(run({"--prompt", "A", "--temperature", "0", "--max-new-tokens",
                                       "50", "--sequence-length", "8", "--json"}))[0];
  EXPECT_NE(err_.find("are more than --sequence-length 8: the text ends there"), std::string::npos)
      << err_;
  EXPECT_EQ(text.find("end")->string(), "positions");
  EXPECT_LE(text.find("new_tokens")->int64(), 8);
}

TEST_F(Generate, SeesAllOfALongPrompt) {
  const std::string prompt = read_text(STRATA_TEXT).substr(0, 1500);
  const Arguments greedy = {"--prompt", prompt, "--temperature", "0", "--max-new-tokens", "4"};
  set_config("max_position_embeddings", int64_t{4096});
  const std::string all = run(greedy);
  EXPECT_EQ(err_, "");
  EXPECT_EQ(all.rfind(prompt, 0), 0u);
  Arguments shorter = greedy;
  shorter.insert(shorter.end(), {"--sequence-length", "8"});
  EXPECT_NE(refused(shorter, kUsage).find("are more than --sequence-length 8 (shorten it)"),
            std::string::npos);
  set_config("max_position_embeddings", int64_t{64});
  EXPECT_NE(refused(greedy, kUsage).find("are more than the model's positions, 64"),
            std::string::npos);
}

TEST_F(Generate, ARefusalSaysWhatKeysAndValuesTake) {
  set_config("max_position_embeddings", int64_t{1} << 24);
  const std::string err = refused(
      {"--prompt", "A", "--prompt", "B", "--max-new-tokens", "9999999", "--host-memory", "80MiB"},
      kDoesNotFit);
  EXPECT_NE(err.find("for keys and values of 2 texts of up to "), std::string::npos) << err;
  EXPECT_NE(err.find("--micro-batch and --max-new-tokens lower it"), std::string::npos) << err;
}

TEST_F(Generate, CtrlCEndsWithWhatIsThere) {
  set_config("max_position_embeddings", int64_t{100000});
  Process process(with({"--prompt", "The harbour", "--max-new-tokens", "90000"}),
                  {.directory = sandbox_.path()});
  EXPECT_TRUE(process.prints("The harbour")) << process.err();
  process.kill(SIGINT);
  EXPECT_EQ(process.wait(), 0) << process.err();
  EXPECT_TRUE(process.out().ends_with("\n"));
}

TEST_F(Generate, APipedTextIsThePrompt) {
  const auto piped = [&](const std::string& input) {
    write_text(sandbox_ / "input", input);
    Process process(
        with({"--max-new-tokens", "6", "--temperature", "0"}),
        {.directory = sandbox_.path(), .wrap = {"bash", "-c", "\"$@\" < input", "bash"}});
    EXPECT_EQ(process.wait(), 0) << process.err();
    return process.out();
  };
  const std::string text =
      run({"--prompt", "A ship of", "--max-new-tokens", "6", "--temperature", "0"});
  EXPECT_EQ(piped("A ship of"), text);
  EXPECT_EQ(piped("A ship of\n"), text);
}

// The template writes the messages; their answer alone is printed.
TEST_F(Generate, AChatIsRenderedByTheTemplateAndAnswered) {
  write_text(sandbox_ / "plain.jinja",
             "{% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}"
             "{{ '[assistant]' if add_generation_prompt }}");
  const Arguments how = {"--max-new-tokens", "9", "--temperature", "0", "--json"};
  const auto answer = [&](Arguments arguments) {
    arguments.insert(arguments.end(), how.begin(), how.end());
    return lines(run(arguments))[0].find("text")->string();
  };
  const std::string rendered = "[system] Be brief. [user] A ship? [assistant]";
  const std::string whole = answer({"--prompt", rendered});
  EXPECT_EQ(answer({"--chat", "--system", "Be brief.", "--prompt", "A ship?", "--chat-template",
                    "plain.jinja"}),
            whole.substr(rendered.size()));
  write_text(sandbox_ / "chats.jsonl",
             R"({"prompt": "A ship?"})"
             "\n"
             R"({"messages": [{"role": "system", "content": "Be brief."},)"
             R"( {"role": "user", "content": "A ship?"}]})"
             "\n");
  Arguments several = {"--chat", "--prompts-file", "chats.jsonl", "--chat-template", "plain.jinja"};
  several.insert(several.end(), how.begin(), how.end());
  const std::vector<config::Json> answers = lines(run(several));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[1].find("text")->string(), whole.substr(rendered.size()));
  EXPECT_EQ(answers[0].find("prompt")->string(), "A ship?");
  EXPECT_EQ(answers[1].find("prompt")->string(), "A ship?");
  EXPECT_NE(refused({"--chat", "--prompt", "A ship?"}, 2)
                .find("the model has no chat template (choose one with --chat-template: chatml, or "
                      "the path of a .jinja file; or give texts to continue, not chats)"),
            std::string::npos);
  EXPECT_NE(refused({"--prompt", "A ship?", "--system", "Be brief."}, 2)
                .find("--system has no meaning without --chat"),
            std::string::npos);
}

TEST_F(Generate, AnAnswerEndsWhereTheTemplateEndsIt) {
  const Arguments greedy = {"--chat",           "--prompt", "A ship", "--temperature",   "0",
                            "--max-new-tokens", "24",       "--json", "--chat-template", "t.jinja"};
  const std::string begin = "{% for m in messages %}{{ m.content }}";
  write_text(sandbox_ / "t.jinja", begin + "{% endfor %}");
  const std::string whole = lines(run(greedy))[0].find("text")->string();
  write_text(sandbox_ / "t.jinja", begin + "{{ 'END' if m.role == 'assistant' }}{% endfor %}");
  EXPECT_EQ(lines(run(greedy))[0].find("text")->string(), whole) << "no marker";
  write_text(sandbox_ / "t.jinja",
             begin + "{{ '<|im_end|>\\n' if m.role == 'assistant' }}{% endfor %}");
  EXPECT_EQ(lines(run(greedy))[0].find("text")->string(), whole) << "it does not write the marker";
}

TEST_F(Generate, PromptsThatCannotBeReadAreRefused) {
  write_text(sandbox_ / "broken.jsonl", "{\"prompt\": \"A\"}\n{\"text\": \"B\"}\n");
  write_text(sandbox_ / "empty.txt", "\n\n");
  EXPECT_NE(refused({"--prompts-file", "broken.jsonl"}, kUsage).find("broken.jsonl:2: no text"),
            std::string::npos);
  EXPECT_NE(refused({"--prompts-file", "empty.txt"}, kUsage).find("has no prompts"),
            std::string::npos);
  EXPECT_NE(refused({"--prompts-file", "nowhere.txt"}, kUsage).find("nowhere.txt"),
            std::string::npos);
  std::string many;
  for (int i = 0; i < 200'000; ++i) many += "a\n";
  write_text(sandbox_ / "many.txt", many);
  EXPECT_NE(refused({"--prompts-file", "many.txt", "--host-memory", "96MiB"}, kDoesNotFit)
                .find("the prompts up to this one take all of the 96 MiB of --host-memory"),
            std::string::npos);
  EXPECT_NE(refused({"--prompt", "A", "--prompts-file", "empty.txt"}, kUsage)
                .find("are two sources of prompts"),
            std::string::npos);
}

TEST_F(Generate, AChatThatAsksNothingIsRefusedWithItsLine) {
  const auto refusal = [&](const std::string& messages) {
    write_text(sandbox_ / "chats.jsonl", "{\"prompt\": \"A\"}\n{\"messages\": " + messages + "}\n");
    return refused({"--chat", "--prompts-file", "chats.jsonl", "--chat-template", "chatml"},
                   kUsage);
  };
  EXPECT_NE(refusal("[]").find("chats.jsonl:2: there is no message"), std::string::npos);
  EXPECT_NE(refusal(R"([{"role": "user", "content": "A"}, {"role": "assistant", "content": "B"}])")
                .find("chats.jsonl:2: the last message is the assistant's"),
            std::string::npos);
}

TEST_F(Generate, AChatOfWhichTheTemplateWritesNothingIsRefused) {
  write_text(sandbox_ / "last.jinja", "{{ messages[-1]['content'] }}");
  write_text(sandbox_ / "chats.jsonl", R"({"messages": [{"role": "user", "content": "A"}]})"
                                       "\n"
                                       R"({"messages": [{"role": "user", "content": ""}]})");
  EXPECT_NE(
      refused({"--chat", "--prompts-file", "chats.jsonl", "--chat-template", "last.jinja"}, kUsage)
          .find("chats.jsonl:2: the chat template writes nothing for this chat"),
      std::string::npos);
}

// As many as it has tokens, and not as it has room for, choose its factors.
TEST_F(Generate, TurnsShortTextsByTheShortFactorsOfLongrope) {
  const auto text = [&](const std::string& factor, const char* length, const char* tokens) {
    // The attention factor is so large that positions tell in a model of random weights.
    const std::string factors = factor + ", " + factor + ", " + factor + ", " + factor;
    set_config("rope_scaling",
               config::Json::parse(R"({"rope_type": "longrope", "attention_factor": 30.0,
        "original_max_position_embeddings": 16, "factor": 4.0, "long_factor": [90, 90, 90, 90],
        "short_factor": [)" + factors + "]}",
                                   "scaling"));
    return run({"--prompt", "A", "--temperature", "0", "--max-new-tokens", tokens,
                "--sequence-length", length});
  };
  const std::string within = text("1.0", "16", "12");
  EXPECT_EQ(text("1.0", "64", "12"), within);
  EXPECT_NE(text("60.0", "16", "12"), within) << "the factors tell";
  // A text that grows beyond begins so, but for a letter that is not whole yet.
  const std::string begin = within.substr(0, within.size() - 5);
  EXPECT_EQ(text("1.0", "64", "40").substr(0, begin.size()), begin);
}

}  // namespace
}  // namespace strata::cli::test
