// SPDX-License-Identifier: Apache-2.0
// Messages become the tokens that the model's chat template writes, and only what the assistant
// wrote is a target.
#include "engine/data/chat_records.h"
#include "tests/train/data_fixture.h"

namespace strata::data {
namespace {

constexpr const char* kTurns =
    R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"},)"
    R"({"role":"user","content":"R"},{"role":"assistant","content":"B"}]})";
constexpr const char* kPlain =
    "{% for m in messages %}{{ m.role[0] + m.content + ';' }}{% endfor %}"
    "{{ 'a' if add_generation_prompt }}";

class DataChat : public DataTest {
 protected:
  // The text of all tokens, and below it a '^' for each target.
  std::string read(const std::string& name, const std::string& text,
                   const std::string& chat_template, const std::string& chosen = "") const {
    const text::Tokenizer tokenizer = test::byte_tokenizer(chat_template);
    const DataOptions options = {
        .length = 1, .vocabulary = 300, .keeps_tail = true, .chat_template = chosen};
    const Dataset data = Dataset::open({write(name, text)}, &tokenizer, options);
    std::string shown;
    std::string marks = " ";  // the first token is no target
    for (int64_t k = 0; k < data.train().sample_count(); ++k) {
      int32_t input = 0;
      int32_t target = 0;
      data.train().sample(k, &input, &target);
      shown += static_cast<char>(input);
      marks += target < 0 ? ' ' : '^';
      last_ = target;
    }
    return shown + "\n" + marks.substr(0, shown.size());
  }
  std::string refusal(const std::string& text, const std::string& chat_template,
                      const std::string& chosen = "") const {
    try {
      return read("a.jsonl", text, chat_template, chosen);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConfig);
      return error.what();
    }
  }
  mutable int32_t last_ = 0;
};

TEST_F(DataChat, TheDateOfTemplatesIsTheSameEveryDayAndMayBeChosen) {
  const char* dated =
      "{{ strftime_now('%d %b %Y') }}{% for m in messages %}{{ m.content }}{% endfor %}";
  const text::Tokenizer tokenizer = test::byte_tokenizer(dated);
  const std::string path = write("a.jsonl", kTurns);
  const auto count = [&](const std::string& date) {
    std::string text;
    const DataOptions options = {
        .length = 1, .vocabulary = 300, .keeps_tail = true, .chat_date = date};
    const Dataset data = Dataset::open({path}, &tokenizer, options);
    for (int64_t k = 0; k < 11; ++k) {
      int32_t input = 0;
      int32_t target = 0;
      data.train().sample(k, &input, &target);
      text += static_cast<char>(input);
    }
    return text;
  };
  EXPECT_EQ(count(""), "26 Jul 2024");
  EXPECT_EQ(count("2025-02-01"), "01 Feb 2025");
}

// What generate --chat asks, and where an answer ends.
TEST_F(DataChat, APromptEndsWhereTheAssistantAnswers) {
  const text::Tokenizer tokenizer = test::byte_tokenizer();
  ChatRecord messages;
  messages.messages = config::Json::parse(R"([{"role": "user", "content": "Q"}])", "messages");
  ChatRecords chatml(tokenizer.config(), "chatml", "");
  EXPECT_EQ(chatml.render_prompt(messages, "x"),
            "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(chatml.answer_end(messages, "x"), "<|im_end|>");
  const auto end = [&](const std::string& source) {
    const text::Tokenizer own = test::byte_tokenizer(source);
    return ChatRecords(own.config(), "", "").answer_end(messages, "x");
  };
  EXPECT_EQ(end("{% for m in messages %}{{ m.content }} <e> <f>{% endfor %}"), "<e>");
  EXPECT_EQ(end("{% for m in messages %}{{ m.content }}.{% endfor %}"), "");
  EXPECT_EQ(end("{% for m in messages %}{{ m.content }}<e{% endfor %}"), "");
  EXPECT_EQ(end("{{ raise_exception('no') }}"), "");
}

TEST_F(DataChat, TheModelsTemplateWritesAllTokens) {
  EXPECT_EQ(read("a.jsonl", kTurns, kPlain), "uQ;aA;uR;aB\n    ^^    ^");
  EXPECT_EQ(last_, ';');  // nothing is behind the chat
}

TEST_F(DataChat, StrippedTurnsBecomeTextsOfTheirOwn) {
  const char* strips =
      "{% for m in messages %}{% set keeps = loop.last or m.role == 'user' %}"
      "{{ m.role[0] + (m.content if keeps else '-') + ';' }}{% endfor %}"
      "{{ 'a' if add_generation_prompt }}";
  EXPECT_EQ(read("a.jsonl", kTurns, strips), "uQ;aA;uQ;a-;uR;aB\n    ^^          ^");
}

TEST_F(DataChat, AnswersOfAPromptAreNoTargets) {
  const std::string record =
      R"({"prompt":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"},)"
      R"({"role":"user","content":"R"}],"completion":[{"role":"assistant","content":"B"}]})";
  EXPECT_EQ(read("a.jsonl", record, kPlain), "uQ;aA;uR;aB\n          ^");
}

// Blocks say it too where a prompt has answers, so that only what they hold is learned.
TEST_F(DataChat, BlocksCountBehindAPromptWithAnswers) {
  const std::string record =
      R"({"prompt":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"},)"
      R"({"role":"user","content":"R"}],"completion":[{"role":"assistant","content":"B"}]})";
  const char* blocks =
      "{% for m in messages %}{{ m.role[0] }}{% if m.role == 'assistant' %}"
      "{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %};"
      "{% endfor %}{{ 'a' if add_generation_prompt }}";
  EXPECT_EQ(read("a.jsonl", record, blocks), "uQ;aA;uR;aB\n          ^");
  EXPECT_EQ(last_, -1);  // the ";" behind the answer
}

// Each turn has one target where the template has no blocks, so that no part is rendered again.
TEST_F(DataChat, TheLastOfManyAnswersIsFoundInAShortTime) {
  std::string turns;
  for (int k = 0; k < 400; ++k) {
    turns += std::string(k == 0 ? "" : ",") + R"({"role":"user","content":"Q"},)" +
             R"({"role":"assistant","content":"A"})";
  }
  const text::Tokenizer tokenizer = test::byte_tokenizer(kPlain);
  const Dataset data =
      Dataset::open({write("a.jsonl", R"({"messages":[)" + turns + "]}")}, &tokenizer,
                    {.length = 1, .vocabulary = 300, .train_on = config::TrainOn::kLastAnswer});
  EXPECT_TRUE(contains(data.description(), "2400 tokens, 2 of them learned")) << data.description();
}

TEST_F(DataChat, APromptOrAnInstructionMayBeAChat) {
  const text::Tokenizer tokenizer = test::byte_tokenizer(kPlain);
  const auto as_chat = [&](const std::string& record) {
    const Dataset data = Dataset::open({write("a.jsonl", record)}, &tokenizer,
                                       {.length = 64,
                                        .vocabulary = 300,
                                        .samples = config::SampleLayout::kRecord,
                                        .as_chats = true});
    std::vector<int32_t> inputs(64);
    std::vector<int32_t> targets(64);
    data.train().sample(0, inputs.data(), targets.data());
    std::string text;
    for (size_t k = 0; k < 64 && inputs[k] != 0 && inputs[k] != 256; ++k) {
      text += targets[k] < 0 ? "" : "^";
      text += static_cast<char>(inputs[k]);
    }
    return text;
  };
  EXPECT_EQ(as_chat(R"({"prompt":"Q","completion":"AB"})"), "uQ;^a^A^B");
  EXPECT_EQ(as_chat(R"({"instruction":"Q","input":"I","output":"A","system":"S",)"
                    R"("history":[["q","b"]]})"),
            "sS;uq;^a^b;uQ\nI;^a^A");
  EXPECT_TRUE(contains(refusal(R"({"instruction":"Q","output":"A","history":[["q","b"]]})", kPlain),
                       "its \"history\" is read in chats alone (add --as-chats on"));
}

// As in Axolotl: a record's own system text is the first message, unless there is one.
TEST_F(DataChat, ASystemTextBesideTheMessagesIsTheirFirst) {
  const char* turns = R"([{"role":"user","content":"Q"},{"role":"assistant","content":"A"}])";
  const auto shown = [&](const std::string& record) {
    const std::string text = read("a.jsonl", record, kPlain);
    return text.substr(0, text.find('\n'));
  };
  const std::string expected = shown(R"({"messages":[{"role":"system","content":"S"},)" +
                                     std::string(turns).substr(1) + "}");
  EXPECT_EQ(expected.substr(0, 3), "sS;");
  EXPECT_EQ(shown(R"({"system":"S","messages":)" + std::string(turns) + "}"), expected);
  EXPECT_EQ(shown(R"({"system":"S","conversations":[{"from":"human","value":"Q"},)"
                  R"({"from":"gpt","value":"A"}]})"),
            expected);
  EXPECT_EQ(shown(R"({"system":"T","messages":[{"role":"system","content":"S"},)" +
                  std::string(turns).substr(1) + "}"),
            expected);
  EXPECT_TRUE(contains(refusal(R"({"system":"S","prompt":"Q","completion":"A"})", kPlain),
                       "its \"system\" is read in chats alone (add --as-chats on"));
}

TEST_F(DataChat, NoContentBesideCallsIsNoneForTheTemplate) {
  const std::string record =
      R"({"messages":[{"role":"user","content":"Q","name":null},)"
      R"({"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f"}}]}]})";
  EXPECT_TRUE(read("a.jsonl", record,
                   "{% for m in messages %}{{ m.role[0] }}{{ 'n' if m.name is defined }}"
                   "{% if m.content is none %}none{% else %}{{ m.content }}{% endif %};{% endfor %}"
                   "{{ 'a' if add_generation_prompt }}")
                  .starts_with("uQ;anone"));
}

TEST_F(DataChat, ToolsAndVariablesReachTheTemplate) {
  const std::string record =
      R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","tool_calls":[{"x":1}]}],)"
      R"("tools":[{"n":"f"}],"chat_template_kwargs":{"k":"v"}})";
  const char* uses =
      "{{ tools | tojson }}{{ k }}{% for m in messages %}{{ m.role[0] }}"
      "{{ m.tool_calls | tojson if m.tool_calls else m.content }};{% endfor %}"
      "{{ 'a' if add_generation_prompt }}{{ eos_token }}";
  EXPECT_TRUE(
      read("a.jsonl", record, "{% generation %}" + std::string(uses) + "{% endgeneration %}")
          .starts_with("[{\"n\": \"f\"}]vuQ;a[{\"x\": 1}];"));
}

TEST_F(DataChat, WordsThatATemplateDoesNotWriteAreWarnedOf) {
  const auto warnings = [&](const char* source) {
    const text::Tokenizer tokenizer = test::byte_tokenizer(source);
    const std::string call =
        R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"",)"
        R"("tool_calls":[{"function":{"name":"look"}}],"reasoning_content":" why not\nso"}]})";
    const test::LogCapture captured;
    Dataset::open({write("a.jsonl", kTurns + std::string("\n") + call)}, &tokenizer,
                  {.length = 64, .vocabulary = 300, .samples = config::SampleLayout::kRecord});
    return captured.text();
  };
  EXPECT_TRUE(contains(warnings("{% for m in messages %}{{ m.role[0] + m.content }};{% endfor %}"
                                "{{ 'a' if add_generation_prompt }}"),
                       "1 of 2 records has tools, calls of tools or reasoning that the chat "
                       "template does not write (line 2)"));
  EXPECT_EQ(warnings("{% for m in messages %}{{ m.role[0] }}{% if m.role == 'assistant' %}"
                     "{{ (m.thinking or '') | trim }}{{ (m.tool_calls or []) | tojson }}{% endif %}"
                     "{{ m.content }};{% endfor %}{{ 'a' if add_generation_prompt }}"),
            "");
  EXPECT_TRUE(contains(warnings("{% for m in messages %}{{ m.role[0] + m.content }}"
                                "{{ (m.tool_calls or []) | tojson }}{{ m.reasoning_content }};"
                                "{% endfor %}{{ 'a(' if add_generation_prompt }}"),
                       "in 2 of 2 records (lines 1, 2) an answer does not begin as the chat "
                       "template's generation prompt does"));
}

TEST_F(DataChat, ReasoningInTheTextThatATemplateStripsIsWarnedOf) {
  const text::Tokenizer tokenizer = test::byte_tokenizer(
      "{% for m in messages %}{{ m.role[0] + m.content.split('</think>')[-1] }};{% endfor %}"
      "{{ 'a' if add_generation_prompt }}");
  const test::LogCapture captured;
  const std::string record = R"({"messages":[{"role":"user","content":"Q"},)"
                             R"({"role":"assistant","content":"<think>\nwhy</think>A"}]})";
  Dataset::open({write("a.jsonl", record)}, &tokenizer,
                {.length = 64, .vocabulary = 300, .samples = config::SampleLayout::kRecord});
  EXPECT_TRUE(contains(captured.text(), "1 of 1 records has tools, calls of tools or reasoning"));
}

// The reasoning of answers that are not learned is stripped by many templates, on purpose.
TEST_F(DataChat, ReasoningThatIsNotLearnedMayBeStripped) {
  const text::Tokenizer tokenizer = test::byte_tokenizer(
      "{% for m in messages %}{{ m.role[0] + (m.content if loop.last else "
      "m.content.split('</think>')[-1]) }};{% endfor %}{{ 'a' if add_generation_prompt }}");
  const std::string answer =
      R"({"role":"assistant","content":"<think>why</think>A"},{"role":"user","content":"Q"},)";
  const std::string last = R"({"role":"assistant","content":"B"}])";
  const auto warnings = [&](const std::string& record, config::TrainOn train_on) {
    const test::LogCapture captured;
    Dataset::open({write("a.jsonl", record)}, &tokenizer,
                  {.length = 64,
                   .vocabulary = 300,
                   .samples = config::SampleLayout::kRecord,
                   .train_on = train_on});
    return captured.text();
  };
  const std::string turns = R"({"messages":[{"role":"user","content":"Q"},)" + answer + last + "}";
  EXPECT_EQ(warnings(turns, config::TrainOn::kLastAnswer), "");
  std::string asked = R"({"prompt":[{"role":"user","content":"Q"},)" + answer;
  asked.back() = ']';
  EXPECT_EQ(warnings(asked + R"(,"completion":[)" + last + "}", config::TrainOn::kAnswers), "");
}

TEST_F(DataChat, BlocksThatLeaveOutTheAnswersAreNamed) {
  const text::Tokenizer tokenizer = test::byte_tokenizer(
      "{% for m in messages %}{{ m.content }}{% endfor %}{% generation %}{% endgeneration %}");
  try {
    Dataset::open({write("a.jsonl", kTurns)}, &tokenizer,
                  {.length = 64, .vocabulary = 300, .samples = config::SampleLayout::kRecord});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_TRUE(contains(error.what(),
                         "(the {% generation %} blocks of the chat template leave out the answers "
                         "of 1 of them: correct it, or choose another by --chat-template)"))
        << error.what();
  }
}

TEST_F(DataChat, ATemplateIsChosenByNameOrFile) {
  const std::string file = write("mine.jinja", "{% generation %}mine!{% endgeneration %}");
  EXPECT_TRUE(read("a.jsonl", kTurns, kPlain, file).starts_with("mine\n"));
  EXPECT_TRUE(read("a.jsonl", kTurns, "", "chatml").starts_with("<|im_start|>user\nQ<|im_end|>"));
  EXPECT_TRUE(contains(refusal(kTurns, ""),
                       "a.jsonl:1: the model has no chat template (choose one with "
                       "--chat-template: chatml, or the path of a .jinja file"));
  EXPECT_TRUE(
      contains(refusal(kTurns, kPlain, "rag"), "the model has no chat template rag, only default"));
  EXPECT_TRUE(contains(refusal(kTurns, kPlain, "gone.jinja"),
                       "chat template: gone.jinja: there is no such file (give its path by"));
}

TEST_F(DataChat, WhatTheTemplateCannotRenderIsRefusedWithItsLine) {
  const std::string lines = std::string(kTurns) + "\n" + kTurns;
  const std::string message =
      refusal(lines, "{{ raise_exception('never') if messages | length == 4 }}");
  EXPECT_TRUE(contains(message, "a.jsonl:1: render chat template: chat_template.jinja:1:"))
      << message;
  EXPECT_TRUE(contains(refusal(kTurns,
                               "{% for m in messages %}{{ m.content }}{% endfor %}"
                               "{{ 'x' if add_generation_prompt }}"),
                       "message 2 and the template's generation prompt do not begin alike"));
  const char* silent =
      R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":""},)"
      R"({"role":"user","content":"R"},{"role":"assistant","content":"B"}]})";
  EXPECT_TRUE(contains(refusal(silent,
                               "{% for m in messages %}{{ m.role[0] + m.content }}{% endfor %}"
                               "{{ 'a' if add_generation_prompt }}"),
                       "message 2 adds nothing to the chat (give it text, or remove it)"));
}

}  // namespace
}  // namespace strata::data
