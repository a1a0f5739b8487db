"""Evaluations of scripted teachers and students behind a real server, in which every number is known beforehand."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.teaching.scripted import KINDS, Scripted, adapts, asks_first, row, world, write_rows
from verl.evaluation.teaching.__main__ import main
from verl.utils.model_servers import openai_http
from verl.workers.classmates import remote


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    monkeypatch.setattr(openai_http, "RETRY_DELAY_S", 0.01)
    monkeypatch.setattr(remote, "PROBE_INTERVAL_S", 0.0)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with world(tmp_path) as there:
        yield there


def taken(scripted: Scripted, *more: str) -> dict[str, Any]:
    """The document of an evaluation."""
    assert main(scripted.arguments(*more)) == 0
    content: dict[str, Any] = json.loads(Path(scripted.path("out.json")).read_text())
    return content


def result(content: dict[str, Any], tutor: str, student: str, decoding: str = "sampled") -> dict[str, Any]:
    (found,) = [
        one
        for one in content["results"]
        if (one["tutor"], one["student"], one["decoding"]) == (tutor, student, decoding)
    ]
    return found


def effect(content: dict[str, Any], tutor: str, student: str, decoding: str = "sampled") -> tuple[Any, ...]:
    """b, w, APG, NDR, NDR_c."""
    numbers = result(content, tutor, student, decoding)["numbers"]
    return (numbers["b"], numbers["w"], *(numbers[name]["value"] for name in ("APG", "NDR", "NDR_c")))


@pytest.mark.acceptance("T12")
@pytest.mark.guards("evaluation raising")
def test_all_numbers_are_those_of_the_scripts(scripted: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    content = taken(scripted)
    for decoding in ("sampled", "greedy"):
        for student in ("weak", "other"):
            assert effect(content, "teacher", student, decoding) == (0, 1, 1, 1, None)
            assert effect(content, "null", student, decoding) == (0, 0, 0, 1, None)
            # Three of four questions are to carry.
            assert effect(content, "untrained", student, decoding) == (0, 0.75, 0.75, 1, None)
            assert effect(content, "reveal", student, decoding) == (0, 1, 1, 1, None)
        assert effect(content, "teacher", "strong", decoding) == (1, 1, 0, 1, 1)
        assert effect(content, "null", "strong", decoding) == (1, 1, 0, 1, 1)
        assert effect(content, "untrained", "strong", decoding) == (1, 0.75, -0.25, 0.75, 0.75)
        assert result(content, "untrained", "strong", decoding)["numbers"]["Sev"] == 1
        assert effect(content, "teacher", "all trained with", decoding) == (0.5, 1, 0.5, 1, 1)
    told = result(content, "teacher", "strong")["advice"]
    assert (told["empty"], told["broken"], told["tokens"]) == (1, 0, 0)
    told = result(content, "teacher", "weak")["advice"]
    # "Mind the carry." has 15 letters, and "Mind the borrow." 16.
    assert (told["empty"], told["tokens"], told["leak_rate"], told["distinct"]) == (0, 15.25, 0, 2)
    assert result(content, "reveal", "strong")["advice"]["leak_rate"] == 1
    assert result(content, "teacher", "weak")["gain_over"]["untrained"]["value"] == 0.25
    assert result(content, "teacher", "strong")["gain_over"]["untrained"]["value"] == 0.25
    assert result(content, "teacher", "weak", "greedy")["numbers"]["mcnemar_p"] == 0.125
    assert result(content, "teacher", "weak")["numbers"]["mcnemar_p"] is None
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines()[:-1])) <= 110
    assert "tells the answer" in out


@pytest.mark.acceptance("T12")
def test_efficiency_and_intervals_worked_out_by_hand(scripted: Scripted) -> None:
    """T12, through the command."""
    content = taken(scripted, "--controls", "untrained", "--decoding", "sampled")
    weak = result(content, "teacher", "weak")["numbers"]
    # Three of 15 letters and one of 16; D is 1 and all responses end by themselves.
    assert weak["TES"]["value"] == pytest.approx(1 / 0.01525)
    written = [len(f"<thinking>who is it</thinking><teaching>Mind the {kind}.</teaching>") for kind in KINDS]
    whole = (3 * written[0] + written[1]) / 4 + len("i am lost")
    assert weak["TES_total"]["value"] == pytest.approx(1000 / whole)
    # "<solution>7</solution>" becomes "<solution>1000</solution>": 25 letters for 22.
    assert weak["TokRed"] == pytest.approx(1 - 25 / 22)
    assert weak["NGain"]["value"] == weak["CR"] == 1
    # Wilson of four right of four: 1 / (1 + z^2 / 4).
    assert weak["NDR"]["interval"] == pytest.approx([4 / (4 + 1.959964**2), 1], abs=1e-5)
    assert weak["APG"]["interval"] == [1, 1]
    strong = result(content, "untrained", "strong")["numbers"]
    assert strong["TES"]["value"] == pytest.approx(-0.25 / 0.015)
    assert strong["NDR"]["interval"] == strong["NDR_c"]["interval"] == pytest.approx([0.300642, 0.954413], abs=1e-5)
    # One of four items is harmed: all four drawn so have a chance of 0.4 %, three or more of 5.1 %, none of 31.6 %.
    assert strong["APG"]["interval"] == [-0.75, 0]
    assert (strong["Sev"], strong["mcnemar_p"]) == (1, None)
    assert not result(content, "teacher", "weak")["numbers"]["target_met"]


def test_a_teacher_that_asks_reads_the_reply(scripted: Scripted) -> None:
    """Who is not asked cannot be told to be lost: about q2 nobody is helped."""
    scripted.scripts["teacher"] = asks_first
    author = "rcl.protocol.probe.author=teacher"
    content = taken(scripted, "--controls", "null", "--decoding", "sampled", author, "data.max_response_length=2048")
    assert effect(content, "teacher", "weak") == (0, 0.75, 0.75, 1, None)
    assert effect(content, "teacher", "strong") == (1, 1, 0, 1, 1)
    assert content["outlines"] == []
    asked = {(one["student"], one["item"]): one for one in content["questions"]}
    assert len(asked) == 3 * 4
    assert asked["weak", "scripted/0"]["question"]["text"] == "Who are you?"
    assert asked["weak", "scripted/0"]["reply"]["text"] == "i am lost"
    assert asked["strong", "scripted/0"]["reply"]["text"] == "i know it"
    assert asked["weak", "scripted/2"]["question"]["state"] == "empty"
    assert asked["weak", "scripted/2"]["reply"]["tokens"] == 0
    # The question and the reply are paid for as well.
    whole = [
        len(asks_first(f"test q{i} kind {kind}: how many?"))
        + len(f"<thinking>who is it</thinking><teaching>{'' if i == 2 else f'Mind the {kind}.'}</teaching>")
        + len("" if i == 2 else "i am lost")
        for i, kind in enumerate(("carry", "borrow", "carry", "carry"))
    ]
    assert result(content, "teacher", "weak")["cost_tokens"] == pytest.approx(sum(whole) / 4)


def test_a_teacher_of_all_at_once_is_told_apart(scripted: Scripted) -> None:
    joint = "rcl.protocol.student_assignment=joint"
    content = taken(scripted, "--controls", "none", "--decoding", "greedy", "--items", "1", joint)
    assert any("student_assignment=joint" in note for note in content["notes"])


def test_the_best_fixed_advice_is_found_on_training_rows(scripted: Scripted) -> None:
    Path(scripted.path("own.txt")).write_text("Mind the borrow.\n\nBe careful.\n")
    content = taken(scripted, "--candidates", scripted.path("own.txt"), "--decoding", "sampled")
    fixed = content["fixed_advice"]
    tried = {one["text"]: one["gains"] for one in fixed["candidates"]}
    assert tried["Mind the carry."] == {"weak": 0.75, "strong": -0.25, "other": 0.75}
    assert tried["Mind the borrow."] == {"weak": 0.25, "strong": -0.75, "other": 0.25}
    assert tried[""] == tried["Be careful."] == {"weak": 0, "strong": 0, "other": 0}
    assert (
        fixed["for_all"]["text"] == fixed["own"]["weak"]["text"] == fixed["own"]["other"]["text"] == "Mind the carry."
    )
    assert fixed["own"]["strong"]["text"] == ""
    assert effect(content, "fixed_all", "strong") == (1, 0.75, -0.25, 0.75, 0.75)
    assert effect(content, "fixed_own", "strong") == (1, 1, 0, 1, 1)
    assert effect(content, "fixed_own", "other") == (0, 0.75, 0.75, 1, None)
    assert {one["item"] for one in content["trials"]} == {f"scripted/{i}" for i in range(4)}


@pytest.mark.acceptance("T13")
def test_a_failing_server_is_counted_and_never_scored(scripted: Scripted) -> None:
    # The weak student's answers about q1 with advice are lost, and all that the teacher would say about q3.
    scripted.fails = lambda model, prompt: (
        (model == "weak" and "q1" in prompt and "<advice>" in prompt) or (model == "teacher" and "q3" in prompt)
    )
    content = taken(scripted, "--controls", "null,untrained", "--decoding", "sampled")
    weak = result(content, "teacher", "weak")
    assert weak["excluded"] == {"engine_error": 2}
    assert (weak["asked"], weak["failed_requests"]) == (4, 2)
    assert (weak["numbers"]["items"], weak["numbers"]["w"]) == (2, 1)
    # Without q1, which is to borrow, the untrained teacher is always right.
    untrained = result(content, "untrained", "weak")
    assert (untrained["numbers"]["items"], untrained["numbers"]["w"], untrained["excluded"]) == (
        3,
        1,
        {"engine_error": 1},
    )
    assert result(content, "null", "weak")["excluded"] == {}
    # Pairs are those that both have: q0 and q2.
    assert weak["gain_over"]["untrained"]["value"] == 0
    assert any("weak, teacher: 2 of 4 trials are in no number (engine_error 2)" in note for note in content["notes"])


@pytest.mark.guards("evaluation raising")
def test_a_server_that_never_answers_leaves_no_numbers(scripted: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    scripted.fails = lambda model, prompt: model == "weak"
    content = taken(scripted, "--controls", "none", "--decoding", "greedy")
    assert result(content, "teacher", "weak", "greedy")["numbers"] is None
    assert result(content, "teacher", "weak", "greedy")["excluded"] == {"engine_error": 4}
    assert effect(content, "teacher", "strong", "greedy") == (1, 1, 0, 1, 1)
    assert effect(content, "teacher", "all trained with", "greedy") == (1, 1, 0, 1, 1)


def test_broken_tags_and_leaks_are_counted(scripted: Scripted) -> None:
    def write(prompt: str) -> str:
        if "q0" in prompt:
            return "<teaching>Mind the carry."
        if "q1" in prompt:
            return "<teaching>It is 1,001.</teaching>"
        if "q2" in prompt:
            return f"<teaching>{'x' * 600}</teaching>"
        return adapts(prompt)

    scripted.scripts["teacher"] = write
    content = taken(scripted, "--controls", "none", "--decoding", "sampled", "--unseen", scripted.path("other"))
    weak = result(content, "teacher", "weak")
    assert weak["advice"]["states"] == {"ok": 2, "overlong": 1, "unclosed": 1}
    assert weak["advice"]["broken"] == 0.5
    assert weak["advice"]["leak_rate"] == weak["numbers"]["leak_rate"] == 0.25
    # q3 alone is helped; the leak is no advice that this student knows.
    assert effect(content, "teacher", "weak") == (0, 0.25, 0.25, 1, None)
    assert weak["leaking"] == {"trials": 1, "b": 0, "w": 0}


def test_a_second_evaluation_asks_for_no_baseline(scripted: Scripted) -> None:
    more = ("--controls", "none", "--decoding", "sampled")
    first = taken(scripted, *more)
    asked = scripted.asked["weak"]
    # Four outlines, 4 x 2 answers alone, 4 x 2 taught.
    assert asked == 20
    second = taken(scripted, *more)
    assert scripted.asked["weak"] - asked == 12
    assert second["results"] == first["results"]


def test_an_evaluation_that_was_ended_goes_on(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    more = ("--controls", "null", "--decoding", "sampled")

    def stop(prompt: str) -> str:
        raise AssertionError("asked again")

    def interrupted(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("verl.evaluation.teaching.exam.Exam.ask_guided", interrupted)
        assert main(scripted.arguments(*more)) == 130
    scripted.scripts["teacher"] = stop
    content = taken(scripted, *more)
    assert effect(content, "teacher", "weak") == (0, 1, 1, 1, None)
    assert any("were answered before" in note for note in content["notes"])
    assert not Path(scripted.path("out.partial.jsonl")).exists()


def test_off_task_the_teacher_answers_itself(scripted: Scripted) -> None:
    write_rows(Path(scripted.path("offtask.parquet")), [row(i, "carry", truth=str(i)) for i in range(4)])

    def knows(*numbers: int) -> Any:
        def answer(prompt: str) -> str:
            if "Plan:" in prompt:
                return adapts(prompt)
            number = int(prompt.partition(" q")[2].partition(" ")[0])
            return f"\\boxed{{{number}}}" if number in numbers else "i do not know"

        return answer

    scripted.scripts |= {"teacher": knows(0, 1), "untrained": knows(0, 2, 3)}
    content = taken(scripted, "--offtask", scripted.path("offtask.parquet"), "--controls", "none")
    offtask = content["offtask"]
    assert (offtask["before"]["right"], offtask["after"]["right"], offtask["after"]["unparsed"]) == (3, 2, 2)
    assert (offtask["lost"], offtask["won"], offtask["p"]) == (2, 1, 1)
