"""What the classmates are shown, by reward type: slices of the thought, what they are compared with, partners."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.classmate.rows import answer_to
from tests.classmate.toy_tokenizers import TOKENIZERS, byte_bpe
from verl.classmate.config import ClassmateCotRewardConfig
from verl.classmate.cot import CotMarkers, CotSpan, locate
from verl.classmate.outcome import Outcome
from verl.classmate.prompts import EXAMPLE
from verl.classmate.row import ReadRow, Task
from verl.classmate.seeds import request_seed, row_key
from verl.classmate.views import derangement, partner_of, read_row

THINK = CotMarkers(start="<think>", end="</think>")
QUESTION = ({"role": "user", "content": "How many apples?"},)
THOUGHT = "\nTom has 2 apples and gets 3 more, so 2 + 3 = 5. Then 5 + 4 = 9."
RESPONSE = f"<think>{THOUGHT}</think>\n\nThe answer is 9."
PARTNER = Task(question="And pears?", data_source="b", reward_model={"ground_truth": "4"})
STEP_WISE = "random_truncate_step_wise_utility"
RANDOM = ("random_truncate", "random_truncate_remove_wo_cot", STEP_WISE)
quick = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def ids_of(text: str, name: str = "byte_bpe") -> list[int]:
    return TOKENIZERS[name]().encode(text, add_special_tokens=False)


def spanned(text: str, name: str = "byte_bpe", *, plain: bool = False) -> CotSpan:
    return locate(ids_of(text, name), TOKENIZERS[name](), None if plain else THINK)


def show(
    text: str = RESPONSE,
    *,
    name: str = "byte_bpe",
    seed: int = 7,
    validate: bool = False,
    partner: Task | None = None,
    plain: bool = False,
    **options,
) -> ReadRow:
    """The views of a response with `ClassmateCotRewardConfig(**options)`."""
    config = ClassmateCotRewardConfig(**options)
    span = spanned(text, name, plain=plain)
    answer = answer_to(messages=QUESTION, response_ids=ids_of(text, name), validate=validate, partner=partner)
    return read_row(answer, span, TOKENIZERS[name](), config, seed=seed)


def thoughts(shown: ReadRow) -> list[str | None]:
    return list(shown.thoughts)


def closed(shown: ReadRow) -> list[bool]:
    return [shown.close for _ in shown.thoughts]


def test_vanilla_is_the_thought_as_the_keep_rate_cuts_it() -> None:
    whole = show()
    assert (thoughts(whole), closed(whole), whole.keep_rate) == ([THOUGHT], [True], 1.0)
    assert byte_bpe().decode(np.array(ids_of(RESPONSE))[whole.mask == 1]) == THOUGHT
    half = show(main_cot_keep_rate=0.5, keep_unit="words")
    assert thoughts(half) == ["\nTom has 2 apples and gets 3 more, so 2"]
    assert closed(half) == [False], "only a whole thought is closed for the classmate"
    last = show(main_cot_keep_rate="last-4-words")
    assert (thoughts(last), closed(last)) == (["+ 4 = 9."], [True])
    assert closed(show(main_cot_keep_rate=0.5, classmate_close_marker="always")) == [True]
    assert closed(show(classmate_close_marker="never")) == [False]
    assert not whole.segments.any()


def test_remove_wo_cot_asks_the_question_alone_on_the_same_terms() -> None:
    for options, close in (({}, True), ({"main_cot_keep_rate": 0.5}, False)):
        shown = show(classmate_reward_type="remove_wo_cot", **options)
        assert thoughts(shown)[1:] == [""]
        assert closed(shown) == [close, close]
        assert shown.chat == QUESTION


def test_immediate_answer_closes_prefixes_too() -> None:
    for kind in ("vanilla_reward", "remove_wo_cot", STEP_WISE):
        options = {} if kind == STEP_WISE else {"main_cot_keep_rate": 0.5}
        shown = show(classmate_reward_type=kind, classmate_continue_mode="immediate_answer", **options)
        assert all(closed(shown)), kind


@pytest.mark.parametrize("kind", RANDOM)
def test_random_cuts_follow_from_the_rows_seed(kind: str) -> None:
    def rates(**arguments) -> list[float]:
        return [show(classmate_reward_type=kind, seed=seed, **arguments).keep_rate for seed in range(40)]

    training = rates()
    assert training == rates(), "the same seed cuts at the same place"
    assert len(set(training)) > 5, "rows are cut at different places"
    assert all(0 < rate <= 0.9 for rate in training)
    low = rates(main_cot_keep_rate_min=0.3, main_cot_keep_rate_max=0.4)
    assert all(0.2 < rate <= 0.4 for rate in low)


@pytest.mark.guards("validation settings ignored")
@pytest.mark.parametrize("kind", RANDOM)
def test_validation_cuts_at_fixed_places(kind: str) -> None:
    shown = [show(classmate_reward_type=kind, seed=seed, validate=True) for seed in range(9)]
    assert len({tuple(thoughts(one)) for one in shown}) == 1
    if kind != STEP_WISE:
        assert shown[0].keep_rate == pytest.approx(0.5, abs=0.1), "the mean of the draws"


def test_step_wise_prefixes_are_nested_down_to_the_question() -> None:
    shown = show(classmate_reward_type=STEP_WISE, step_wise_segments=3, validate=True, keep_unit="words")
    texts = thoughts(shown)
    assert len(texts) == 4
    assert texts[-1] == ""
    for longer, shorter in pairwise(texts):
        assert longer.startswith(shorter)
        assert longer != shorter
    ids = np.array(ids_of(RESPONSE))
    segments = [byte_bpe().decode(ids[shown.segments == k]) for k in (1, 2, 3)]
    assert "".join(segments) == texts[0]
    assert segments[0] == texts[2]
    assert (shown.segments[shown.mask == 0] == 0).all()


def test_cuts_that_fall_together_make_one_segment_less() -> None:
    shown = show("<think>5</think>5", classmate_reward_type=STEP_WISE, step_wise_segments=4)
    assert thoughts(shown) == ["5", ""]
    assert set(shown.segments[shown.mask == 1]) == {1}


@pytest.mark.parametrize("kind", ["help_other_questions", "help_other_similar_questions"])
def test_the_whole_response_is_an_example_for_another_question(kind: str) -> None:
    shown = show(classmate_reward_type=kind, partner=PARTNER)
    assert [dict(message) for message in shown.chat] == [
        *QUESTION,
        {"role": "assistant", "content": EXAMPLE},
        {"role": "user", "content": "And pears?"},
    ]
    assert (shown.example, shown.thoughts, shown.close) == (RESPONSE, (None,), False)
    assert shown.mask.all()
    immediate = show(classmate_reward_type=kind, partner=PARTNER, classmate_continue_mode="immediate_answer")
    assert (immediate.thoughts, immediate.close) == (("",), True)
    alone = show(classmate_reward_type=kind)
    assert (alone.outcome, alone.thoughts) == (Outcome.no_partner, ())


@pytest.mark.guards("unfinished CoT closed and rewarded")
@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("<think>2 + 3", Outcome.unfinished_cot),
        ("The answer is 9.", Outcome.unfinished_cot),
        ("<think>\n </think>9", Outcome.empty_cot),
    ],
)
@pytest.mark.parametrize("kind", ["vanilla_reward", "remove_wo_cot", *RANDOM])
def test_nobody_is_asked_about_a_thought_that_is_none(text: str, outcome: Outcome, kind: str) -> None:
    shown = show(text, classmate_reward_type=kind)
    assert (shown.outcome, shown.thoughts) == (outcome, ())


@pytest.mark.parametrize("text", ["<think></think>", "<think>\n </think>", "So: <think>\n</think>"])
@pytest.mark.parametrize("kind", ["vanilla_reward", *RANDOM])
def test_the_markers_answer_for_an_empty_thought(text: str, kind: str) -> None:
    response = f"{text}\n\nThe answer is 9."
    shown = show(response, classmate_reward_type=kind)
    assert shown.outcome is Outcome.empty_cot
    assert byte_bpe().decode(np.array(ids_of(response))[shown.mask == 1]) == text
    assert (shown.segments == (shown.mask if kind == STEP_WISE else 0)).all()


def test_blanks_in_front_of_a_thought_hide_nothing() -> None:
    shown = show("<think>\n3 + 4 = 7</think>7", main_cot_keep_rate="first-1-tokens")
    assert (shown.outcome, shown.kept_text) == (Outcome.empty_cot, "\n")
    assert shown.mask.tolist() == [0, 1, *[0] * (len(shown.mask) - 2)]


def test_all_of_a_blank_response_answers_for_it() -> None:
    assert show(" \n", plain=True, main_cot_keep_rate=0.5).mask.all()
    assert show(" \n", classmate_reward_type="help_other_questions", partner=PARTNER).mask.all()


def test_unfinished_thoughts_when_the_option_says_so() -> None:
    shown = show("<think>2 + 3", unfinished_cot="close_and_score")
    assert (shown.outcome, thoughts(shown), closed(shown)) == (Outcome.ok, ["2 + 3"], [True])
    for text, setting, outcome in (
        ("<think>2 + 3", "no_classmate", Outcome.unfinished_cot),
        ("<think>2 + 3", "close_and_score", Outcome.ok),
        (" ", "close_and_score", Outcome.empty_cot),
    ):
        kind = "help_other_questions"
        assert show(text, classmate_reward_type=kind, partner=PARTNER, unfinished_cot=setting).outcome is outcome


def test_plain_format_cuts_the_response_itself() -> None:
    shown = show("2 + 3 = 5. It is 5.", plain=True, main_cot_keep_rate=0.5, keep_unit="words")
    assert (thoughts(shown), closed(shown)) == (["2 + 3 ="], [False])


def test_similar_partner_is_the_rows_own() -> None:
    row = {"ground_truth": "9", "paired_similar_q": "And plums?", "paired_similar_q_gt": "3", "style": "rule"}
    config = ClassmateCotRewardConfig(classmate_reward_type="help_other_similar_questions")

    def similar(reward_model: dict[str, str | None]) -> Task | None:
        return partner_of(answer_to(Task(data_source="a", reward_model=reward_model)), config)

    partner = similar(row)
    assert partner is not None
    assert (partner.question, partner.data_source) == ("And plums?", "a")
    assert partner.reward_model["ground_truth"] == "3"
    assert similar({"ground_truth": "9"}) is None
    assert similar({"ground_truth": "9", "paired_similar_q": None}) is None


@pytest.mark.guards("derangement of one")
@given(n=st.integers(0, 60), seed=st.integers(0, 2**31 - 1))
@quick
def test_derangement(n: int, seed: int) -> None:
    """Everybody helps somebody else, and everybody is helped; nobody where there is nobody else."""
    partners = derangement(n, seed)
    assert partners == derangement(n, seed)
    assert sorted(partners) == (list(range(n)) if n > 1 else [])
    assert not any(i == partner for i, partner in enumerate(partners))


def test_derangements_differ_between_seeds() -> None:
    assert len({tuple(derangement(6, seed)) for seed in range(50)}) > 20
    counts = Counter(derangement(3, seed)[0] for seed in range(200))
    assert set(counts) == {1, 2}, "every other row may be the partner"


def test_seeds_of_views_classmates_and_samples_all_differ() -> None:
    """As the judge derives them: sample number = view x S + sample; the policy counts as classmate -1."""
    key = row_key("a", 3)
    asked = [request_seed(0, 5, key, rollout, m, v * 2 + s)
             for rollout in range(4) for m in range(2) for v in range(4) for s in range(2)]  # fmt: skip
    own = [request_seed(0, 5, key, rollout, -1, use) for rollout in range(4) for use in range(2)]
    assert len({*asked, *own}) == len(asked) + len(own)


pieces = st.sampled_from(["Tom has 2 apples", " so ", "\n\n", "12 + 30 = 42.", " é", "你好", "🙂", "a", " ", "<", "7"])
cots = st.lists(pieces, min_size=1, max_size=10).map("".join)


@pytest.mark.parametrize("name", ["byte_bpe", "text_bpe", "merging_bpe", "character_bpe"])
@given(
    cot=cots,
    kind=st.sampled_from(["vanilla_reward", "remove_wo_cot", *RANDOM]),
    rate=st.sampled_from([1, 0.5, "first-3-tokens", "last-3-tokens", "last-2-words"]),
    unit=st.sampled_from(["tokens", "words"]),
    seed=st.integers(0, 1000),
    segments=st.integers(1, 5),
)
@quick
def test_what_is_shown_is_what_is_marked(
    name: str, cot: str, kind: str, rate: float | str, unit: str, seed: int, segments: int
) -> None:
    options = {"keep_unit": unit} | ({} if kind in RANDOM else {"main_cot_keep_rate": rate})
    if kind == STEP_WISE:
        options["step_wise_segments"] = segments
    tokenizer, text = TOKENIZERS[name](), f"<think>{cot}</think>\n\n7"
    ids, span = ids_of(text, name), spanned(text, name)
    shown = show(text, name=name, seed=seed, classmate_reward_type=kind, **options)
    assert len(shown.mask) == len(shown.segments) == len(ids)
    if shown.outcome is not Outcome.ok:
        assert not shown.kept_text.strip()
        return
    assert span.cot is not None
    given_texts = [thought or "" for thought in shown.thoughts]
    for given_text in given_texts:
        assert span.cot.startswith(given_text) or span.cot.endswith(given_text)
    assert given_texts[0] == shown.kept_text
    assert all(longer.startswith(shorter) for longer, shorter in pairwise(given_texts))
    # The mask: one run of tokens inside the thought, that decode to the kept text but for characters cut in pieces and
    # for tokens merged with a marker.
    positions = np.flatnonzero(shown.mask)
    assert all(span.start <= i < span.end for i in positions)
    if len(positions):
        assert positions[-1] - positions[0] + 1 == len(positions)
        marked = tokenizer.decode(ids[positions[0] : positions[-1] + 1], clean_up_tokenization_spaces=False)
        assert marked.strip("\ufffd") in span.cot or name == "character_bpe"
        if name == "byte_bpe" and unit == "tokens" and "words" not in str(rate):
            assert marked.strip("\ufffd") == shown.kept_text.strip("\ufffd")
    if kind != STEP_WISE:
        assert not shown.segments.any()
        return
    # Segments: each token of the largest prefix in exactly one, in order, numbered from 1 without gaps.
    assert ((shown.segments > 0) == (shown.mask > 0)).all()
    numbers = shown.segments[shown.mask > 0]
    assert (np.diff(numbers) >= 0).all()
    assert set(numbers) <= set(range(1, len(shown.thoughts)))
    assert len(shown.thoughts) - 1 <= segments
