"""The CoT is found in real tokens of every kind, cut where asked, and the mask covers exactly what is handed over."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.classmate.toy_tokenizers import TOKENIZERS, byte_bpe, merging_bpe, text_bpe
from verl.classmate.cot import CotKind, CotMarkers, CotSpan, KeepSpec, keep, locate, loss_mask, parse_keep_rate
from verl.classmate.errors import ConfigError

THINK = CotMarkers(start="<think>", end="</think>")
ALL = parse_keep_rate(1)
quick = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def encode(tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


def decode(tokenizer, ids) -> str:
    return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


@pytest.mark.guards("markers counted as output")
@pytest.mark.parametrize("name", ["byte_bpe", "character_bpe"])
def test_closed_thought(name: str) -> None:
    tokenizer = TOKENIZERS[name]()
    ids = encode(tokenizer, "<think>\n3 + 4 = 7.</think>\n\nThe answer is 7.<|im_end|>")
    span = locate(ids, tokenizer, THINK)
    assert (span.kind, span.cot, span.output) == (CotKind.closed, "\n3 + 4 = 7.", "\n\nThe answer is 7.")
    assert decode(tokenizer, ids[span.start : span.end]) == "\n3 + 4 = 7."
    assert decode(tokenizer, ids[span.output_start : span.output_end]) == "\n\nThe answer is 7."
    assert span.output_end == len(ids) - 1, "the end-of-sequence token is no output"


@pytest.mark.parametrize(
    ("response", "preopened", "kind", "cot", "output"),
    [
        ("3 + 4 = 7.</think>\n\nThe answer is 7.", False, CotKind.closed, "3 + 4 = 7.", "\n\nThe answer is 7."),
        ("<think>3 + 4 = 7, so", False, CotKind.unfinished, "3 + 4 = 7, so", None),
        ("3 + 4 = 7, so", True, CotKind.unfinished, "3 + 4 = 7, so", None),
        ("The answer is 7.", False, CotKind.no_marker, None, None),
        ("", False, CotKind.no_marker, None, None),
        ("<think></think>7", False, CotKind.closed, "", "7"),
        ("<think>7</think>", False, CotKind.closed, "7", ""),
        ("so <think>3 + 4</think>7</think>8", False, CotKind.closed, "3 + 4", "7</think>8"),
        ("</think><think>3 + 4</think>7", False, CotKind.closed, "3 + 4", "7"),
        ("a</think><think>b", False, CotKind.unfinished, "b", None),
        # The template opened the thought: the first close marker ends it, whatever the answer mentions.
        ("3 + 4</think>7, as in <think> marks", True, CotKind.closed, "3 + 4", "7, as in <think> marks"),
        ("3 + 4</think>7<think>8</think>9", True, CotKind.closed, "3 + 4", "7<think>8</think>9"),
        ("3 <think> 4</think>7", True, CotKind.closed, "3 <think> 4", "7"),
        ("</think>7", True, CotKind.closed, "", "7"),
        ("</think><think>3 + 4</think>7", True, CotKind.closed, "", "<think>3 + 4</think>7"),
        ("3 + 4, so <think> again", True, CotKind.unfinished, "3 + 4, so <think> again", None),
        # The policy opens it once more.
        ("<think>3 + 4</think>7", True, CotKind.closed, "3 + 4", "7"),
        ("\n<think>3 + 4</think>7 <think>", True, CotKind.closed, "3 + 4", "7 <think>"),
        ("<think>3 + 4", True, CotKind.unfinished, "3 + 4", None),
        ("<think><think>3</think>7", True, CotKind.closed, "<think>3", "7"),
    ],
)
@pytest.mark.parametrize("name", ["byte_bpe", "text_bpe", "character_bpe"])
def test_every_branch(name: str, response: str, preopened: bool, kind: CotKind, cot: str, output: str) -> None:
    tokenizer = TOKENIZERS[name]()
    ids = encode(tokenizer, response)
    span = locate(ids, tokenizer, THINK, preopened=preopened)
    assert (span.kind, span.cot, span.output) == (kind, cot, output)
    assert span.closed == (kind is CotKind.closed)
    if cot:
        assert decode(tokenizer, ids[span.start : span.end]) == cot or name == "text_bpe"
    if output:
        assert decode(tokenizer, ids[span.output_start : span.output_end]) in output
        assert decode(tokenizer, ids[span.start : span.end]) in cot


def test_marker_written_in_other_tokens_than_its_own() -> None:
    """A policy may spell `</think>` in pieces although the vocabulary has it as one token."""
    tokenizer, pieces = byte_bpe(), text_bpe()
    spelled = encode(pieces, "</think>")
    assert len(spelled) > 1
    ids = [*encode(tokenizer, "<think>3 + 4"), *spelled, *encode(tokenizer, "7</think>8")]
    span = locate(ids, tokenizer, THINK)
    assert (span.cot, span.output) == ("3 + 4", "7</think>8")
    assert decode(tokenizer, ids[span.start : span.end]) == "3 + 4"


@pytest.mark.guards("markers counted as output")
def test_tokens_merged_with_a_marker() -> None:
    tokenizer = merging_bpe()
    ids = encode(tokenizer, "<think>\nTom has 2 apples and gets 3 more, so 2 + 3 = 5.</think>\n\nThe answer is 5.")
    pieces = [decode(tokenizer, [token]) for token in ids]
    assert any("</think>" in piece and piece != "</think>" for piece in pieces), pieces
    span = locate(ids, tokenizer, THINK)
    assert span.cot == "\nTom has 2 apples and gets 3 more, so 2 + 3 = 5."
    assert span.output == "\n\nThe answer is 5."
    mask = keep(span, ids, tokenizer, ALL).mask
    assert not any("think>" in piece for piece, in_mask in zip(pieces, mask, strict=True) if in_mask)
    assert "".join(piece for piece, in_mask in zip(pieces, mask, strict=True) if in_mask) in span.cot


def test_markers_made_of_special_tokens() -> None:
    tokenizer = text_bpe()
    markers = CotMarkers(start="<|begin|>thought<|message|>", end="<|begin|>answer<|message|>")
    ids = encode(tokenizer, "<|begin|>thought<|message|>3 + 4<|begin|>answer<|message|>It is 7<|im_end|>")
    span = locate(ids, tokenizer, markers)
    assert (span.cot, span.output) == ("3 + 4", "It is 7")
    assert decode(tokenizer, ids[span.start : span.end]) == "3 + 4"
    kept = keep(span, ids, tokenizer, parse_keep_rate(0.5))
    assert kept.text
    assert span.cot.startswith(kept.text)
    just_closed = encode(tokenizer, "<|begin|>thought<|message|>3 + 4<|begin|>answer<|message|>")
    assert locate(just_closed, tokenizer, markers).output == ""


def test_plain_format_takes_the_whole_response() -> None:
    tokenizer = text_bpe()
    ids = encode(tokenizer, "3 + 4 = 7. It is 7.<|im_end|>")
    span = locate(ids, tokenizer, None)
    assert (span.kind, span.cot, span.output) == (CotKind.plain, "3 + 4 = 7. It is 7.", "3 + 4 = 7. It is 7.")
    assert keep(span, ids, tokenizer, ALL).mask.tolist() == [1] * (len(ids) - 1) + [0]


@pytest.mark.parametrize(
    ("rate", "unit", "text", "whole"),
    [
        (1, "tokens", "one two three four", True),
        ("all", "words", "one two three four", True),
        (0.5, "words", "one two", False),
        (0.01, "words", "one", False),
        ("first-3-words", "tokens", "one two three", False),
        ("last-1-words", "tokens", "four", True),
        ("first-99-words", "tokens", "one two three four", True),
        ("last-99-tokens", "tokens", "one two three four", True),
    ],
)
@pytest.mark.parametrize("name", ["byte_bpe", "text_bpe", "character_bpe"])
def test_keep_specs(name: str, rate: float | str, unit, text: str, whole: bool) -> None:
    tokenizer = TOKENIZERS[name]()
    ids = encode(tokenizer, "<think>one two three four</think>4")
    span = locate(ids, tokenizer, THINK)
    kept = keep(span, ids, tokenizer, parse_keep_rate(rate, unit=unit))
    assert (kept.text, kept.whole) == (text, whole)
    assert decode(tokenizer, np.array(ids)[kept.mask == 1]).strip() == text


def test_ratio_counts_tokens_down_but_keeps_one() -> None:
    tokenizer = TOKENIZERS["character_bpe"]()
    ids = encode(tokenizer, "<think>0123456789</think>4")
    span = locate(ids, tokenizer, THINK)
    for rate, expected in ((0.01, "0"), (0.29, "01"), (0.3, "012"), (0.99, "012345678")):
        kept = keep(span, ids, tokenizer, parse_keep_rate(rate))
        assert kept.text == expected
        assert kept.rate == pytest.approx(len(expected) / 10)


@pytest.mark.parametrize(
    "rate", [0, -1, 2, 1.5, True, "half", "first-0-tokens", "first-tokens", "last--3-tokens", "nan"]
)
def test_impossible_keep_rates(rate) -> None:
    with pytest.raises(ConfigError, match=r"reward\.keep: .* write 1, a ratio"):
        parse_keep_rate(rate, path="reward.keep")


@pytest.mark.parametrize(
    ("response", "cot_only", "output_only"),
    [
        ("<think>3 + 4</think>7.<|im_end|>", "<think>3 + 4</think>", "<think></think>7.<|im_end|>"),
        ("3 + 4</think>7.", "3 + 4</think>", "</think>7."),
        ("<think>3 + 4, so", "<think>3 + 4, so", "<think>"),
        ("The answer is 7.", "", ""),
        ("<think></think>7.", "<think></think>", "<think></think>7."),
    ],
)
def test_tokens_that_the_loss_counts(response: str, cot_only: str, output_only: str) -> None:
    tokenizer = byte_bpe()
    ids = encode(tokenizer, response)
    span = locate(ids, tokenizer, THINK)

    def counted(mode) -> str:
        mask = loss_mask(span, len(ids), mode)
        return tokenizer.decode([token for token, m in zip(ids, mask, strict=True) if m])

    assert counted("all_tokens") == response
    assert counted("cot_only") == cot_only
    assert counted("output_only") == output_only


@pytest.mark.guards("crash on an empty CoT")
def test_empty_cot_hands_over_nothing() -> None:
    tokenizer = byte_bpe()
    for response in ("<think></think>7", "7"):
        ids = encode(tokenizer, response)
        kept = keep(locate(ids, tokenizer, THINK), ids, tokenizer, parse_keep_rate(0.5))
        assert kept.text == ""
        assert kept.mask.sum() == 0


def check_span(span: CotSpan, ids: list[int], tokenizer) -> None:
    """Text and token span agree with the decoded text, and no token more could belong to the CoT."""
    text = decode(tokenizer, ids)
    _, opened, rest = text.partition("<think>")
    cot, closed, output = (rest if opened else text).partition("</think>")
    assert span.kind == ("closed" if closed else "unfinished" if opened else "no_marker")
    assert span.output == (output if closed else None)
    assert span.cot == (cot if opened or closed else None)
    if not closed:
        return

    def length(tokens: int) -> int:
        return len(decode(tokenizer, ids[:tokens]))

    first = text.index("<think>") + len("<think>") if opened else 0
    assert length(span.start) >= first
    assert length(span.output_start) >= first + len(cot) + len("</think>")
    if span.start:
        assert length(span.start - 1) < first
    if span.start < span.end:
        assert length(span.end) <= first + len(cot) < length(span.end + 1)


def check_kept(span: CotSpan, ids: list[int], tokenizer, spec: KeepSpec) -> None:
    kept = keep(span, ids, tokenizer, spec)
    positions = np.flatnonzero(kept.mask)
    if span.cot is None:
        assert kept.text == ""
        assert len(positions) == 0
        return
    assert span.cot.endswith(kept.text) if spec.kind == "last" else span.cot.startswith(kept.text)
    if kept.whole and spec.kind != "last":
        assert kept.text == span.cot
    assert all(span.start <= i < span.end for i in positions)
    assert len(positions) == 0 or positions[-1] - positions[0] + 1 == len(positions)
    if spec.unit == "tokens" and span.cot_length and span.cot:
        expected = {
            "all": span.cot_length,
            "ratio": max(1, int(span.cot_length * spec.amount + 1e-9)),
            "first": min(span.cot_length, int(spec.amount)),
            "last": min(span.cot_length, int(spec.amount)),
        }[spec.kind]
        assert len(positions) == expected
    if spec.unit == "words" and spec.kind != "all":
        words = span.cot.split()
        count = len(kept.text.split())
        assert kept.text.split() == (words[len(words) - count :] if spec.kind == "last" else words[:count])
    if len(positions) and not kept.whole:
        # What the masked tokens decode to, in place, is the kept text (a character split by the cut is dropped).
        before = decode(tokenizer, ids[: positions[0]])
        through = decode(tokenizer, ids[: positions[-1] + 1])
        masked = through[len(before) :].rstrip("\ufffd")
        if spec.unit == "tokens":
            assert kept.text.rstrip("\ufffd").endswith(masked)
        else:
            shown, wanted = through[span.cot_char :].strip(), kept.text.strip()
            # A token that holds the end of the CoT and its marker is not masked, whatever words begin in it.
            assert wanted in shown or (positions[-1] == span.end - 1 and wanted.startswith(shown))


pieces = st.one_of(
    st.sampled_from(
        ["Tom has 2 apples", " so ", "\n\n", "12 + 30 = 42.", "<", "</", "think>", " é", "你好", "🙂", "🙂🙂"]
    ),
    st.text(alphabet="ab 1.\n<>/é🙂", max_size=6),
)
texts = st.lists(pieces, max_size=8).map("".join)
specs = st.sampled_from(
    [
        parse_keep_rate(rate, unit=unit)
        for unit in ("tokens", "words")
        for rate in (
            1,
            0.1,
            0.5,
            0.9,
            "first-1-tokens",
            "first-5-tokens",
            "last-1-tokens",
            "last-4-tokens",
            "last-2-words",
        )
    ]
)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(before=st.sampled_from(["", "<think>", "so <think>"]), cot=texts, after=st.sampled_from(["", "</think>"]),
       output=texts, spec=specs)  # fmt: skip
@quick
def test_texts(name: str, before: str, cot: str, after: str, output: str, spec: KeepSpec) -> None:
    tokenizer = TOKENIZERS[name]()
    ids = encode(tokenizer, before + cot + after + output)
    span = locate(ids, tokenizer, THINK)
    check_span(span, ids, tokenizer)
    check_kept(span, ids, tokenizer, spec)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.data(), spec=specs)
@quick
def test_random_tokens(name: str, data: st.DataObject, spec: KeepSpec) -> None:
    """What a policy samples need not be what the tokenizer would write, nor valid UTF-8."""
    tokenizer = TOKENIZERS[name]()
    tokens = st.lists(st.integers(0, len(tokenizer) - 1), max_size=12)
    ids = [
        *encode(tokenizer, data.draw(st.sampled_from(["", "<think>"]))),
        *data.draw(tokens),
        *encode(tokenizer, data.draw(st.sampled_from(["", "</think>"]))),
        *data.draw(tokens),
    ]
    span = locate(ids, tokenizer, THINK)
    check_span(span, ids, tokenizer)
    check_kept(span, ids, tokenizer, spec)


@given(cot=texts, output=texts)
@quick
def test_round_trip(cot: str, output: str) -> None:
    """With a byte-level tokenizer nothing is lost between what was written and what is found."""
    tokenizer = byte_bpe()
    if "<think>" in cot + output or "</think>" in cot + output:
        return
    span = locate(encode(tokenizer, f"<think>{cot}</think>{output}"), tokenizer, THINK)
    assert (span.cot, span.output) == (cot, output)


def read_by_hand(text: str, preopened: bool) -> tuple[str, str | None, str | None]:
    """(kind, CoT, output), found by walking over the characters once: the reader that `locate` is held against."""
    thought: list[str] = []
    answer: list[str] = []
    before: list[str] = []
    state, rest, opened_late = "thought" if preopened else "before", text, False
    while rest:
        again = state == "thought" and preopened and not opened_late and not "".join(thought).strip()
        if again and rest.startswith("<think>"):
            thought, opened_late, rest = [], True, rest[len("<think>") :]
            continue
        if state == "before" and rest.startswith("<think>"):
            state, rest = "thought", rest[len("<think>") :]
        elif state == "thought" and rest.startswith("</think>"):
            state, rest = "answer", rest[len("</think>") :]
        else:
            {"before": before, "thought": thought, "answer": answer}[state].append(rest[0])
            rest = rest[1:]
    if state == "answer":
        return "closed", "".join(thought), "".join(answer)
    if state == "thought":
        return "unfinished", "".join(thought), None
    # Neither opened by the template nor by the policy: a close marker alone tells that somebody had opened it.
    cot, found, output = "".join(before).partition("</think>")
    return ("closed", cot, output) if found else ("no_marker", None, None)


pieces = st.lists(
    st.sampled_from(["<think>", "</think>", "3 + 4", " so ", "\n", "7.", "<", "/think>", "é"]), max_size=9
)


@pytest.mark.parametrize("preopened", [True, False])
@pytest.mark.parametrize("name", ["byte_bpe", "text_bpe", "merging_bpe", "character_bpe"])
@given(pieces=pieces)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_order_of_markers(name: str, preopened: bool, pieces: list[str]) -> None:
    tokenizer, text = TOKENIZERS[name](), "".join(pieces)
    ids = encode(tokenizer, text)
    if decode(tokenizer, ids) != text:
        return
    span = locate(ids, tokenizer, THINK, preopened=preopened)
    assert (span.kind.value, span.cot, span.output) == read_by_hand(text, preopened)
    assert 0 <= span.start <= span.end <= len(ids)
    if span.closed:
        assert span.end <= span.output_start <= span.output_end == len(ids)
        assert decode(tokenizer, ids[span.start : span.end]) in span.cot
        assert decode(tokenizer, ids[span.output_start :]) in span.output
