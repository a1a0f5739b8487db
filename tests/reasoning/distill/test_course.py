"""The order of a course: equal parts by difficulty, replay, tokens that go to later stages."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from verl.reasoning.distill.course import Course


def course(problems: list[str], **more: object) -> Course:
    usual: dict[str, object] = {"stages": 3, "budget": 900, "replay_ratio": 0.25, "seed": 0}
    return Course(problems_of_rows=problems, **{**usual, **more})  # type: ignore[arg-type]


def test_stages_go_from_easy_to_hard() -> None:
    found = course(list("cabcab"))
    hard = {"a": 0.1, "b": 0.5, "c": 0.9}
    found.begin_stage(hard)
    assert found.bins == [["a"]]
    assert set(found.draw(20)) == {1, 4}
    found.begin_stage(hard)
    found.begin_stage(hard)
    assert found.bins == [["a"], ["b"], ["c"]]
    assert found.untaught() == []


def test_what_is_left_is_measured_again() -> None:
    """After the first stage `c` has become easier than `b`."""
    found = course(list("abc"))
    found.begin_stage({"a": 0.1, "b": 0.5, "c": 0.9})
    found.begin_stage({"b": 0.5, "c": 0.2})
    assert found.bins[1] == ["c"]


def test_a_share_of_the_rows_is_replayed() -> None:
    found = course(list("ab"), stages=2, replay_ratio=0.25)
    found.begin_stage({"a": 0.0, "b": 1.0})
    found.begin_stage({"b": 1.0})
    counts = Counter(found.draw(4000))
    assert 0.22 < counts[0] / 4000 < 0.28


def test_tokens_that_a_stage_leaves_go_to_the_later_ones() -> None:
    found = course(list("abc"), budget=900)
    hard = {"a": 0.1, "b": 0.5, "c": 0.9}
    found.begin_stage(hard)
    assert found.stage_tokens_left(0) == 300
    # It ended early, at 100.
    found.begin_stage(hard, tokens=100)
    assert found.stage_tokens_left(100) == 400
    found.begin_stage(hard, tokens=500)
    assert found.stage_tokens_left(500) == 400
    assert found.is_last


@given(
    st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=20), st.integers(1, 6), st.integers(0, 99), st.booleans()
)
@settings(max_examples=60)
def test_every_problem_is_in_one_stage(problems: list[str], stages: int, seed: int, restored: bool) -> None:
    found = course(problems, stages=stages, seed=seed)
    hard = {one: float(ord(one) * 37 % 11) for one in problems}
    for _ in range(found.stages):
        found.begin_stage(hard)
        if restored:
            other = course(problems, stages=stages, seed=seed)
            other.set_state(found.state())
            assert other.draw(5) == found.draw(5)
        assert found.bins[-1]
    assert sorted(problem for one in found.bins for problem in one) == sorted(set(problems))
    sizes = [len(one) for one in found.bins]
    assert max(sizes) - min(sizes) <= 1


def test_each_row_comes_once_before_any_comes_again() -> None:
    found = course(list("abcd"), stages=1)
    found.begin_stage(dict.fromkeys("abcd", 0.0))
    assert sorted(found.draw(4)) == [0, 1, 2, 3]
    assert sorted(found.draw(4)) == [0, 1, 2, 3]
