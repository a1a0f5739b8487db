"""Templates of real families: what they take is found by trying, and a run's own template gives them what they take."""

import datetime

import pytest
import transformers.utils.chat_template_utils as chat_templates

from tests.classmate.template_families import FAMILIES, Family
from tests.classmate.toy_tokenizers import byte_bpe, templated
from tests.clock import Tomorrow
from verl.classmate.templates import Traits, closes_thought, for_run, traits

SYSTEM, FIRST, REPLY, SECOND = "Answer in one word.", "What is 3 + 4?", "It is 7.", "And 4 + 5?"
CHATS = {
    "u": [("user", FIRST)],
    "su": [("system", SYSTEM), ("user", FIRST)],
    "uau": [("user", FIRST), ("assistant", REPLY), ("user", SECOND)],
    "suau": [("system", SYSTEM), ("user", FIRST), ("assistant", REPLY), ("user", SECOND)],
    "uu": [("user", FIRST), ("user", SECOND)],
    "suu": [("system", SYSTEM), ("user", FIRST), ("user", SECOND)],
    "s": [("system", SYSTEM)],
}


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    return FAMILIES[request.param]


def messages(roles: str) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in CHATS[roles]]


def render(tokenizer, chat: list[dict[str, str]], **kwargs) -> str:
    return tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False, **kwargs)


def test_traits_are_those_of_the_family(family: Family) -> None:
    with templated(byte_bpe(), family.template) as tokenizer:
        assert traits(tokenizer, family.markers) == Traits(
            system=family.system, alternates=family.alternates, thinks=family.thinks, dated=family.dated
        )


@pytest.mark.parametrize("roles", [roles for roles in CHATS if roles != "s"])
def test_every_text_of_a_chat_is_in_the_prompt_once_and_in_order(family: Family, roles: str) -> None:
    with templated(byte_bpe(), family.template) as own:
        text = render(for_run(own, date="2026-01-02", system_as_user=True), messages(roles))
    places = [text.index(content) for _, content in CHATS[roles] if content != SYSTEM]
    assert places == sorted(places)
    assert all(text.count(content) == 1 for _, content in CHATS[roles])
    if "s" in roles and not family.system:
        assert f"{SYSTEM}\n\n{FIRST}" in text, "in front of the user's words, in the user's turn"
    if "uu" in roles and family.alternates:
        assert f"{FIRST}\n\n{SECOND}" in text


def test_what_a_template_takes_by_itself_is_rendered_as_before(family: Family) -> None:
    with templated(byte_bpe(), family.template) as own:
        ours = for_run(own, date=None, system_as_user=True)
        assert render(ours, messages("u")) == render(own, messages("u"))
        assert render(ours, messages("uau")) == render(own, messages("uau"))
        if family.system:
            assert render(ours, messages("suau")) == render(own, messages("suau"))
        if family.system and not family.alternates:
            assert ours is own, "nothing has to be different"
        assert own.chat_template == family.template


def test_without_the_option_nothing_is_put_elsewhere(family: Family) -> None:
    with templated(byte_bpe(), family.template) as own:
        assert for_run(own, date=None, system_as_user=False) is own


def test_the_day_is_that_of_the_run_whatever_the_clock_says(family: Family, monkeypatch) -> None:
    with templated(byte_bpe(), family.template) as own:
        ours = for_run(own, date="2026-01-02", system_as_user=True)
        today, ours_today = render(own, messages("u")), render(ours, messages("u"))
        monkeypatch.setattr(chat_templates, "datetime", Tomorrow)
        assert render(ours, messages("u")) == ours_today
        assert (render(own, messages("u")) != today) == family.dated, "the template alone follows the clock"
        other = render(for_run(own, date="2027-03-14", system_as_user=True), messages("u"))
    assert (other != ours_today) == family.dated
    if family.dated:
        assert any(day in ours_today for day in ("02 Jan 2026", "2026-01-02", "02 January 2026"))
        assert "2031" not in ours_today + other


@pytest.mark.parametrize("date", ["2026-01-02", "2024-02-29", "1999-12-31"])
def test_every_directive_of_a_date_is_pythons(date: str) -> None:
    formats = ["%d %b %Y", "%Y-%m-%d", "%B %d, %Y", "%A", "%-d.%-m.%y", "%j", "100%% of %D", "%F %T", "no date"]
    template = "{% for f in formats %}{{ strftime_now(f) }}|{% endfor %}"
    with templated(byte_bpe(), template) as own:
        ours = for_run(own, date=date, system_as_user=False)
        shown = ours.apply_chat_template([{"role": "user", "content": ""}], tokenize=False, formats=formats)
    day = datetime.datetime.fromisoformat(date)
    assert shown.split("|")[:-1] == [day.strftime(one) for one in formats]


def test_the_run_s_template_is_made_once() -> None:
    with templated(byte_bpe(), FAMILIES["gemma2"].template) as own:
        ours = for_run(own, date="2026-01-02", system_as_user=True)
        assert ours is not own
        assert for_run(ours, date="2026-01-02", system_as_user=True) is ours


@pytest.mark.parametrize("start", ["\n\n", "  ", "", "{{ '\n' }}", "\n  {% if true %}x{% endif %}\n"])
def test_white_space_at_the_template_s_begin_stays(start: str) -> None:
    template = start + FAMILIES["gemma2"].template
    with templated(byte_bpe(), template) as own:
        ours = for_run(own, date="2026-01-02", system_as_user=True)
        assert ours is not own
        assert render(ours, messages("uau")) == render(own, messages("uau"))


def test_named_templates_are_all_made_for_the_run() -> None:
    gemma = FAMILIES["gemma2"].template
    with templated(byte_bpe(), {"default": gemma, "other": "{{ messages[0].content }}"}) as own:
        ours = for_run(own, date=None, system_as_user=True)
        assert f"{SYSTEM}\n\n{FIRST}" in render(ours, messages("su"))
        assert not traits(own, FAMILIES["gemma2"].markers).system


def test_content_in_parts_and_further_fields_stay_as_they_are() -> None:
    template = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}"
    template += "{% for m in messages %}{{ m }}{% endfor %}"
    parts = {"role": "user", "content": [{"type": "text", "text": "see"}], "name": "x"}
    with templated(byte_bpe(), template) as own:
        ours = for_run(own, date=None, system_as_user=True)
        assert render(ours, [parts]) == render(own, [parts]) == str(parts)


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", True),
        ("<think></think>", True),
        ("assistant\n", False),
        ("assistant\n<think>\n", False),
        ("earlier <think>so</think> It is 7.\nassistant\n", False),
        ("assistant\n<think>so</think>", False),
        ("</think>", False),
    ],
)
def test_a_prompt_that_closes_the_thought(text: str, closed: bool) -> None:
    assert closes_thought(text, FAMILIES["qwen3"].markers) == closed
