# SPDX-License-Identifier: Apache-2.0
"""Chats that are hard to render: white space, empty turns, special tokens in the content, Unicode, tools,
tool calls, reasoning, documents, lists of parts. What Transformers renders of them is the reference."""
import datetime
import random

DATE = datetime.datetime(2024, 7, 26, 13, 5, 9)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the weather of a place.\nIn °C or °F: \"quoted\" & <tagged>.",
    "parameters": {"type": "object", "properties": {
        "location": {"type": "string", "description": "City, e.g. Zürich"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        "days": {"type": ["integer", "null"], "description": "How many", "minimum": 1},
        "grid": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
        "exact": {"type": "boolean"}},
        "required": ["location"]},
    "return": {"type": "string"}}}
SEARCH = {"type": "function", "function": {
    "name": "search", "description": "Search documents", "parameters": {"type": "object", "properties": {
        "query": {"type": "string", "description": "What to search"},
        "filters": {"type": "object", "properties": {"lang": {"type": "string", "nullable": True},
                                                     "since": {"anyOf": [{"type": "integer"}, {"type": "string"}]}},
                    "required": ["lang"]},
        "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "default": []}},
        "required": ["query", "tags"]}}}
NOTHING = {"type": "function", "function": {"name": "now", "description": "The time",
                                            "parameters": {"type": "object", "properties": {}}}}


def user(content, **more):
    return {"role": "user", "content": content, **more}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def call(name, arguments, number=1):
    return {"id": f"call{number:05d}", "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(content, number=1, name="get_weather"):
    return {"role": "tool", "tool_call_id": f"call{number:05d}", "name": name, "content": content}


HI, HO = user("Hi"), assistant("Hello!")
ASKED = user("Weather in Zürich?")
ARGUMENTS = {"location": "Zürich", "unit": "celsius", "days": 3, "grid": [[1.5, 2.0], []], "exact": True}


def chats():
    """Pairs of messages and of what else apply_chat_template() is given."""
    plain = [
        [HI], [HI, HO], [HI, HO, user("More")], [HI, HO, user("More"), assistant("Sure.")],
        [system("Be brief."), HI], [system("Be brief."), HI, HO, user("And?"), assistant("Yes.")],
        [system(""), HI, HO], [user(""), assistant("")], [user(" "), assistant("\n")],
        [user("  two spaces "), assistant("\n\nlines \n ")], [system("\n trimmed?\t"), user("\tx\n"), assistant(" y ")],
        [user("tabs\tand\rreturns\r\nmixed\n\r"), assistant("\u2028line\u2029para\x85nel\xa0nbsp\u3000")],
        [user("e\u0301 é ẞ ß İ ﬁ Ǆ Σίσυφος"), assistant("日本語 한국어 👩‍👩‍👧‍👦 🇨🇭 \U0010ffff")],
        [user("<s></s><|im_start|>user\n<|im_end|>"), assistant("[INST] <<SYS>> [/INST] <|eot_id|> <end_of_turn>")],
        [user("{{ 7 * 7 }} {% if x %} {# c #}"), assistant("{{ messages }}")],
        [user("quotes ' \" ''' \\ / \b \f \x00 \x7f"), assistant('{"a": [1, 2.5e-7, null, true]}')],
        [user("a" * 300), assistant("b " * 200)],
        [HI, assistant("<think>\nfirst\n</think>\n\nThe answer"), user("Again"), assistant("<think>no end")],
        [HI, assistant("a</think>b</think>c")],
        [HI, assistant("Answer", reasoning_content="Because.\n")],
        [HI, assistant("A", reasoning_content=" one "), user("B"), assistant("C", reasoning_content="\ntwo\n\n")],
        [HI, assistant("T", thinking="inner")], [HI, assistant("T", reasoning="old")],
        [HI, assistant("", reasoning_content="only reasoning")], [HI, assistant("x", reasoning_content="")],
        [system("S"), HI, HO, system("Again"), user("x"), HO], [HO], [assistant("first"), HI], [HI, user("twice")],
        [HI, HO, assistant("twice")], [system("S")], [{"role": "developer", "content": "Dev"}, HI, HO],
        [{"role": "unknown", "content": "?"}, HI], [HI, {"role": "assistant"}], [user(None), HO],
        [user([{"type": "text", "text": "part one "}, {"type": "text", "text": " two"}]), assistant([{"type": "text", "text": "ok"}])],
        [user([{"type": "image"}, {"type": "text", "text": "What is it?"}]), HO],
        [user("What? /no_think"), HO, user("Now /think"), assistant("<think>\n\n</think>\n\nOk")],
        [user("3.0 and True"), assistant("None")],
        [dict(HI, name="Bob"), dict(HO, name="Ann")],
    ]
    for messages in plain:
        yield messages, {}
    tools = [WEATHER, SEARCH, NOTHING]
    with_tools = [
        [ASKED], [system("Use tools."), ASKED],
        [ASKED, assistant("", tool_calls=[call("get_weather", ARGUMENTS)])],
        [ASKED, assistant(None, tool_calls=[call("get_weather", ARGUMENTS)]), tool("12 °C"), assistant("It is 12 °C.")],
        [system("S"), ASKED, assistant("Let me see.", tool_calls=[call("get_weather", {"location": "\"Bern\" \\ é"})]),
         tool('{"temp": 12.0, "sky": ["clear", null]}'), assistant("Clear."), user("Thanks"), assistant("Sure")],
        [ASKED, assistant("", tool_calls=[call("get_weather", {"location": "A"}), call("search", {"query": "b", "tags": ["a"],
         "filters": {"lang": None, "deep": {"x": [1, {"y": 2.50}]}}}, 2)]), tool("one"), tool("two", 2, "search"), assistant("Both.")],
        [ASKED, assistant("", tool_calls=[call("now", {})]), tool("", 1, "now"), assistant("Late.")],
        [ASKED, assistant("", tool_calls=[call("get_weather", '{"location": "as text"}')]), tool("ok"), assistant("Done")],
        [ASKED, assistant("", reasoning_content="I need the tool.", tool_calls=[call("get_weather", {"location": "C"})]),
         tool("cold"), assistant("Cold.", reasoning_content="So cold"), user("And D?")],
        [ASKED, assistant("", tool_calls=[{"name": "now", "arguments": {}}]), tool("flat", 1, "now"), assistant("x")],
        [ASKED, assistant("", tool_calls=[]), user("none"), HO],
        [ASKED, assistant("", tool_calls=[call("get_weather", {"location": "E"})]), tool([{"type": "text", "text": "listed"}]), HO],
        [ASKED, assistant("", tool_calls=[call("get_weather", {"location": "F"})]), tool({"temp": 3, "ok": False}), HO],
        [ASKED, HO, tool("orphan"), HO],
    ]
    for messages in with_tools:
        yield messages, {"tools": tools}
    yield with_tools[3], {"tools": [WEATHER], "variables": {"date_string": "01 Jan 2025"}}
    yield with_tools[3], {}
    yield plain[5], {"tools": tools}
    yield plain[5], {"tools": []}
    for variables in [{"enable_thinking": True}, {"enable_thinking": False}, {"thinking": True}, {"reasoning_effort": "high"},
                      {"builtin_tools": ["browser", "python"]}, {"model_identity": "You are a test."},
                      {"tools_in_user_message": False}, {"xml_tools": [WEATHER]}, {"keep_past_thinking": True},
                      {"system_message": "A system."}, {"custom_instructions": "Write a lot.\n"}]:
        yield plain[20], {"variables": variables}
        yield with_tools[4], {"tools": tools, "variables": variables}
    documents = [{"title": "T é", "text": "Body\nof it"}, {"title": "U", "text": ""}, {"id": 3, "contents": "c", "content": "d"}]
    yield plain[0], {"documents": documents}
    yield with_tools[4], {"tools": tools, "documents": documents[:2]}
    rng = random.Random(20240726)
    pool = [" ", "\n", "  \n", "\t", "word", "é", "日本", "👍", "<|im_end|>", "</s>", "{%", "}}", "'", '"', "\\n", "<think>", "</think>",
            "<tool_call>", "0", "1e5", "\u2003", "\u200b", "end.", "A", "b"]

    def text():
        return "".join(rng.choice(pool) for _ in range(rng.randint(0, 12)))
    for _ in range(20):
        messages = [system(text())] if rng.random() < 0.5 else []
        for _ in range(rng.randint(1, 4)):
            messages.append(user(text()))
            more = {"reasoning_content": text()} if rng.random() < 0.3 else {}
            messages.append(assistant(text(), **more))
        yield messages, {}


def jobs():
    """Every chat, with and without a generation prompt."""
    for messages, more in chats():
        for prompt in (False, True):
            variables = {**TOKENS, **more.get("variables", {})}
            yield {"messages": messages, "tools": more.get("tools"), "documents": more.get("documents"),
                   "variables": variables, "add_generation_prompt": prompt}


def fix_date():
    """Makes strftime_now() of Transformers tell DATE."""
    from transformers.utils import chat_template_utils

    class Fixed(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return DATE
    chat_template_utils.datetime = Fixed


def render(template, job):
    """The text and the ranges of bytes within generation blocks, or the exception."""
    from transformers.utils.chat_template_utils import render_jinja_template
    try:
        texts, ranges = render_jinja_template(
            [job["messages"]], tools=job["tools"], documents=job["documents"], chat_template=template,
            return_assistant_tokens_mask="generation" in template,
            add_generation_prompt=job["add_generation_prompt"], **job["variables"])
    except Exception as error:  # whatever jinja2, the sandbox or Python raises
        return error
    text = texts[0]
    spans = [[len(text[:begin].encode()), len(text[:end].encode())] for begin, end in (ranges[0] if ranges else [])]
    return text, spans
