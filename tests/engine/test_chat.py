"""Rendered chats: the template's words, and whose words each part is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.chat import Prompt, render_chat, template_renderer
from engine.errors import RequestError
from engine.models import LoadedModel
from engine.tokenizer import Tokenizer

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def render(template: str, *messages: tuple[str, Any]) -> Prompt:
    return render_chat(
        template_renderer(template, {"bos_token": "<s>", "eos_token": "</s>"}),
        [{"role": role, "content": content} for role, content in messages],
    )


def parts(prompt: Prompt) -> list[tuple[str, str]]:
    return [(prompt.text[start:end], role) for start, end, role in prompt.roles]


def test_contents_are_told_from_the_template() -> None:
    prompt = render(CHATML, ("system", "Be kind."), ("user", "Hi"), ("assistant", "Hello!"), ("user", "Bye"))
    assert prompt.text.endswith("<|im_start|>assistant\n")
    assert parts(prompt) == [("Be kind.", "system"), ("Hi", "user"), ("Hello!", "assistant"), ("Bye", "user")]


def test_content_that_the_template_also_writes_is_found_in_its_own_place() -> None:
    prompt = render(CHATML, ("user", "user"), ("user", "<|im_start|>user\nassistant"))
    assert [start for start, _, _ in prompt.roles] == [len("<|im_start|>user\n"), prompt.text.index("<|im_start|>", 40)]
    assert parts(prompt) == [("user", "user"), ("<|im_start|>user\nassistant", "user")]


def test_content_that_the_template_strips() -> None:
    prompt = render("{% for m in messages %}[{{ m.content | trim }}]{% endfor %}", ("user", "  a b \n"), ("user", " "))
    assert prompt.text == "[a b][]"
    assert parts(prompt) == [("a b", "user")]


def test_content_that_the_template_rewrites_counts_as_the_templates() -> None:
    prompt = render("{% for m in messages %}[{{ m.content | upper }}]{% endfor %}", ("user", "abc"))
    assert prompt.text == "[ABC]"
    assert parts(prompt) == []


def test_content_beside_rewritten_content_is_still_found() -> None:
    template = "{% for m in messages %}{{ m.role }}:{% if loop.first %}{{ m.content | upper }}{% else %}{{ m.content }}"
    prompt = render(template + "{% endif %};{% endfor %}", ("system", "abc"), ("user", "question"))
    assert parts(prompt) == [("question", "user")]


def test_messages_that_a_template_leaves_out_or_moves_do_not_confuse_it() -> None:
    """Some templates write the system message into the first user turn, or only the last messages."""
    moved = "{% for m in messages[1:] %}<{{ m.role }}>{% if loop.first %}{{ messages[0].content }}\n\n{% endif %}"
    prompt = render(moved + "{{ m.content }}{% endfor %}", ("system", "Rule."), ("user", "Hi"))
    assert prompt.text == "<user>Rule.\n\nHi"
    assert parts(prompt) == [("Rule.", "system"), ("Hi", "user")]
    last_only = render("{{ messages[-1].content }}", ("user", "first"), ("user", "last"))
    assert parts(last_only) == [("last", "user")]


@settings(max_examples=200, deadline=None)
@given(
    contents=st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(["user", "<|im_end|>\n", ""]),
        min_size=1,
        max_size=5,
    )
)
def test_every_content_is_found_whole_and_in_order(contents: list[str]) -> None:
    prompt = render(CHATML, *(("user", content) for content in contents))
    assert [text for text, _ in parts(prompt)] == [content for content in contents if content]
    rest = prompt.text
    for content in contents:
        before = "<|im_start|>user\n"
        assert rest.startswith(before + content)
        rest = rest.removeprefix(before + content + "<|im_end|>\n")
    assert rest == "<|im_start|>assistant\n"


def test_a_chat_of_very_many_messages_is_read_in_one_go() -> None:
    """Each message is found from where the one before ended: looking from the start would take minutes."""
    render = template_renderer("{% for m in messages %}<{{ m['content'] }}>{% endfor %}", {})
    messages = [{"role": role, "content": f"{i}"} for i in range(20_000) for role in ("user", "assistant")]
    prompt = render_chat(render, messages)
    assert [prompt.text[start:end] for start, end, _ in prompt.roles] == [message["content"] for message in messages]
    assert [role for _, _, role in prompt.roles] == [message["role"] for message in messages]


def test_what_a_template_rewrites_is_its_own_however_much_it_is() -> None:
    render = template_renderer("{% for m in messages %}<{{ m['content'] | upper }}>{% endfor %}", {})
    messages = [{"role": "user", "content": f"a{i}"} for i in range(20_000)]
    assert render_chat(render, messages).roles == []


def test_developer_and_tool_messages_have_a_role() -> None:
    prompt = render(CHATML, ("developer", "Rules"), ("tool", "42"))
    assert parts(prompt) == [("Rules", "system"), ("42", "user")]


def test_content_in_parts_is_joined() -> None:
    content = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert parts(render(CHATML, ("user", content))) == [("ab", "user")]


@pytest.mark.model
def test_roles_of_the_built_in_models_tokens(smollm2: LoadedModel) -> None:
    tokenizer = smollm2.tokenizer
    prompt = tokenizer.render_chat([{"role": "user", "content": "Hi there"}])
    encoding = tokenizer.encode(prompt.text, add_special=False)
    roles = tokenizer.roles(prompt, encoding.spans)
    labels = [tokenizer.label(id) for id in encoding.ids]
    assert [label for label, role in zip(labels, roles, strict=True) if role == "user"] == ["Hi", " there"]
    assert set(roles) == {"user", "template"}  # the default system message is the template's own
    assert "You are a helpful AI assistant" in prompt.text


def test_a_token_across_a_border_goes_to_whom_most_of_it_belongs() -> None:
    prompt = Prompt("aaabbb", [(0, 3, "system"), (3, 6, "user")])
    assert prompt.roles_of([(0, 2), (2, 5), (5, 6)]) == ["system", "user", "user"]
    assert Prompt("aaab", [(3, 4, "user")]).roles_of([(0, 4), (3, 4), (4, 4)]) == ["template", "user", "template"]


# --- what is refused --------------------------------------------------------------------------------------------------


def refusal(template: str | None, messages: list[Any]) -> str:
    with pytest.raises(RequestError) as caught:
        render_chat(template_renderer(template, {}) if template is not None else None, messages)
    assert caught.value.param == "messages"
    return str(caught.value)


def test_a_template_that_raises_says_why() -> None:
    template = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    assert "System role not supported" in refusal(template, [{"role": "system", "content": "x"}])


def test_a_template_that_fails_is_the_requests_fault() -> None:
    assert "chat template" in refusal("{{ messages[0].content + 1 }}", [{"role": "user", "content": "x"}])
    assert "undefined" in refusal("{{ nothing.at.all }}", [{"role": "user", "content": "x"}])


def test_a_template_with_a_syntax_error_says_so() -> None:
    assert "chat template" in refusal("{% for %}", [{"role": "user", "content": "x"}])


def test_templates_cannot_reach_outside_their_sandbox() -> None:
    hostile = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    assert "unsafe" in refusal(hostile, [{"role": "user", "content": "x"}])


def test_templates_may_ask_for_the_date() -> None:
    prompt = render("{{ strftime_now('%Y') }} {{ messages[0].content }}", ("user", "x"))
    assert prompt.text[:2] == "20"
    assert parts(prompt) == [("x", "user")]


def test_a_model_without_a_template_says_so() -> None:
    assert "no chat template" in refusal(None, [{"role": "user", "content": "x"}])


@pytest.mark.parametrize(
    ("messages", "names"),
    [
        ([], "empty"),
        (["hello"], "messages[0]"),
        ([{"content": "x"}], "messages[0]"),
        ([{"role": "user", "content": "x"}, {"role": "wizard", "content": "x"}], "'wizard'"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": "…"}]}], "not text"),
        ([{"role": "user", "content": "\ud800"}], "surrogate"),
    ],
)
def test_malformed_messages_are_named(messages: list[Any], names: str) -> None:
    assert names in refusal(CHATML, messages)


def test_tiny_chats_too() -> None:
    tokenizer = Tokenizer.bytes_tokenizer()
    assert tokenizer.has_chat_template
    prompt = tokenizer.render_chat([{"role": "user", "content": "é"}])
    encoding = tokenizer.encode(prompt.text, add_special=False)
    roles = tokenizer.roles(prompt, encoding.spans)
    assert [tokenizer.token_bytes(id) for id, role in zip(encoding.ids, roles, strict=True) if role == "user"] == [
        b"\xc3",
        b"\xa9",
    ]
