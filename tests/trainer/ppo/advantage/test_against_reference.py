"""Every estimator of ours, with every option, against a plain-Python computation of the same formulas."""

import dataclasses
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.ppo import recompute
from tests.trainer.ppo.recompute import Options, Rewards
from verl.classmate.algorithm_config import AdvantageConfig
from verl.classmate.estimators import DECOUPLED_ESTIMATORS
from verl.trainer.ppo.advantage import AdvantageInputs, compute_advantage

TOKENS, SEGMENTS = 4, 2


@dataclass(frozen=True, kw_only=True)
class Row:
    """One response."""

    group: str
    """Its prompt."""
    r: float
    """Main reward."""
    w: float
    """Classmate reward W."""
    f: float
    """Fused reward."""
    k: float = 0.0
    """Consistency reward."""
    main_valid: bool = True
    """Whether r is."""
    classmate_valid: bool = True
    """Whether W is."""
    consistency_valid: bool = True
    """Whether K is."""
    padding: bool = False
    """A copy that fills the batch."""
    correct: bool = False
    """Whether the main answer is."""
    response: tuple[int, ...] = (1, 1, 0)
    """m."""
    cot: tuple[int, ...] = (1, 0, 0)
    """k."""
    segment: tuple[int, ...] = (0, 0, 0)
    """Segment of each token."""
    utilities: tuple[float | None, ...] = ()
    """Reward of each segment."""

    @property
    def counts(self) -> bool:
        """Whether it is in any statistics."""
        return self.main_valid and not self.padding

    @property
    def tokens(self) -> list[int]:
        """What `recompute` wants to know of each token of the response."""
        kinds = self.segment if self.utilities else self.cot
        return [kind for kind, m in zip(kinds, self.response, strict=True) if m]

    def parts(self) -> Rewards:
        """Its rewards, as far as they are valid."""
        known = self.main_valid and self.classmate_valid
        return Rewards(
            main=self.r if self.main_valid else None,
            correct=self.correct,
            asked=True,
            classmate=self.w if known else None,
            segments=tuple(u if known else None for u in self.utilities),
            consistency=self.k if self.main_valid and self.consistency_valid else None,
            fused=self.f,
        )


def expected(rows: list[Row], options: Options) -> torch.Tensor:
    """Advantages by row and token, by `recompute`; padding is left out there and nothing here."""
    real = [row for row in rows if not row.padding]
    # Without a consistency component none is valid or missing.
    parts = [row.parts() if options.consistency else replace(row.parts(), consistency=None) for row in real]
    found = iter(recompute.of_parts(parts, [row.group for row in real], options, [row.tokens for row in real]))
    result = []
    for row in rows:
        advantages = [] if row.padding else recompute.on_tokens(next(found), row.tokens, options)
        result.append([*advantages, *[0.0] * (len(row.response) - len(advantages))])
    return torch.tensor(result, dtype=torch.float32)


# Exact in binary, so that equal rewards are equal in both computations.
REWARDS = st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0, 3.0])
WEIGHTS = st.sampled_from([0.0, 0.5, 1.0, 2.0])


@st.composite
def rows_and_options(draw: st.DrawFn) -> tuple[list[Row], Options]:
    """One step with any mixture of missing, failed and padding rows, and options that go together."""
    estimator = draw(st.sampled_from([*DECOUPLED_ESTIMATORS, "grpo", "grpo_w_classmate"]))
    segments = draw(st.booleans())
    clamps = ["none", "non_neg_adv_when_main_correct"] + ["non_neg_cl"] * (estimator in DECOUPLED_ESTIMATORS)
    options = Options(
        reward_type=recompute.STEP_WISE if segments else "vanilla_reward",
        condition="always",
        estimator=estimator,
        token_mode="classmate_partial" if segments else draw(st.sampled_from(["classmate_partial", "all"])),
        clamp=draw(st.sampled_from(clamps)),
        batch_norm=draw(st.sampled_from(["sequence", "token", "none"])),
        norm_by_std=draw(st.booleans()),
        singleton=draw(st.sampled_from(["zero", "raw"])),
        weight=draw(WEIGHTS),
        main_weight=draw(WEIGHTS) if estimator.startswith("gdpo") else 1.0,
        consistency=draw(st.booleans()),
        consistency_weight=draw(WEIGHTS),
    )
    return [draw(_row(options)) for _ in range(draw(st.integers(1, 9)))], options


@st.composite
def _row(draw: st.DrawFn, options: Options) -> Row:
    length = draw(st.integers(1, TOKENS))
    response = tuple(int(t < length) for t in range(TOKENS))
    segment = tuple(draw(st.integers(0, SEGMENTS)) * m for m in response)
    cot = tuple(int(s > 0) for s in segment)
    r, w, k = draw(REWARDS), draw(REWARDS), draw(REWARDS)
    present = [True, True, True, False]
    return Row(
        group=draw(st.sampled_from("abc")),
        r=r,
        w=w,
        f=r + options.weight * w + (options.consistency_weight * k if options.consistency else 0.0),
        k=k,
        main_valid=draw(st.sampled_from(present)),
        classmate_valid=draw(st.sampled_from(present)),
        consistency_valid=draw(st.sampled_from(present)),
        padding=not draw(st.sampled_from(present)),
        correct=draw(st.booleans()),
        response=response,
        cot=cot,
        segment=segment if options.reward_type == recompute.STEP_WISE else (0,) * TOKENS,
        utilities=tuple(draw(REWARDS | st.none()) for _ in range(SEGMENTS))
        if options.reward_type == recompute.STEP_WISE
        else (),
    )


def computed(rows: list[Row], options: Options) -> torch.Tensor:
    """The same by the implementation."""

    def column(name: str, kind: torch.dtype) -> torch.Tensor:
        return torch.tensor([getattr(row, name) for row in rows], dtype=kind)

    more = {}
    if options.consistency:
        more["consistency_reward_B"] = column("k", torch.float32)
        more["consistency_valid_B"] = column("consistency_valid", torch.bool)
    if options.reward_type == recompute.STEP_WISE:
        more["segment_BR"] = column("segment", torch.int64)
        more["segment_reward_BK"] = torch.tensor(
            [[math.nan if u is None else u for u in row.utilities] for row in rows], dtype=torch.float32
        )
    inputs = AdvantageInputs(
        base_reward_B=column("r", torch.float32),
        classmate_reward_B=column("w", torch.float32),
        final_reward_B=column("f", torch.float32),
        main_valid_B=column("main_valid", torch.bool),
        classmate_valid_B=column("classmate_valid", torch.bool),
        response_mask_BR=column("response", torch.int64),
        classmate_mask_BR=column("cot", torch.int64),
        group_B=np.array([row.group for row in rows], dtype=object),
        padding_B=column("padding", torch.bool),
        main_correct_B=column("correct", torch.bool),
        **more,
    )
    config = AdvantageConfig(
        adv_estimator=options.estimator,  # type: ignore[arg-type]
        norm_adv_by_std_in_grpo=options.norm_by_std,
        gdpo_batch_norm=options.batch_norm,  # type: ignore[arg-type]
        gdpo_group_norm="std" if options.norm_by_std else "mean_only",
        singleton_group=options.singleton,  # type: ignore[arg-type]
        classmate_reward_weight=options.weight,
        main_reward_weight=options.main_weight,
        token_level_classmate_reward_mode=options.token_mode,  # type: ignore[arg-type]
        classmate_advantage_clamp=options.clamp,  # type: ignore[arg-type]
        add_consistency_reward=options.consistency,
        consistency_reward_weight=options.consistency_weight,
        min_classmate_valid_fraction=0.0,
    )
    return compute_advantage(inputs, config).advantages_BR


@given(rows_and_options())
@settings(max_examples=600, deadline=None)
def test_agrees_with_plain_python(case: tuple[list[Row], Options]) -> None:
    rows, options = case
    torch.testing.assert_close(computed(rows, options), expected(rows, options), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("estimator", [*DECOUPLED_ESTIMATORS, "grpo", "grpo_w_classmate"])
@pytest.mark.parametrize("batch_norm", ["sequence", "token", "none"])
@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("clamp", ["none", "non_neg_adv_when_main_correct"])
def test_agrees_on_rows_with_all_parts(estimator: str, batch_norm: str, segments: bool, clamp: str) -> None:
    """What chance draws too seldom: every component of every row is there and weighs something of its own."""
    options = Options(
        reward_type=recompute.STEP_WISE if segments else "vanilla_reward",
        condition="always",
        estimator=estimator,
        batch_norm=batch_norm,
        clamp=clamp,
        weight=0.5,
        consistency=True,
        consistency_weight=2.0,
    )
    random = np.random.default_rng(0)
    rows = [
        Row(
            group="ab"[i % 2],
            r=r,
            w=w,
            f=r + 0.5 * w + 2.0 * k,
            k=k,
            correct=i < 4,
            response=(1, 1, 1, i % 2),
            cot=(1, 1, 0, 0),
            segment=(1, 2, 0, 0) if segments else (0, 0, 0, 0),
            utilities=tuple(random.normal(size=SEGMENTS)) if segments else (),
        )
        for i, (r, w, k) in enumerate(random.normal(size=(8, 3)).tolist())
    ]
    torch.testing.assert_close(computed(rows, options), expected(rows, options), rtol=1e-4, atol=1e-4)


@given(rows_and_options(), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_the_order_of_rows_does_not_matter(case: tuple[list[Row], Options], random) -> None:
    rows, options = case
    order = random.sample(range(len(rows)), len(rows))
    shuffled = computed([rows[i] for i in order], options)
    torch.testing.assert_close(shuffled, computed(rows, options)[order], rtol=1e-4, atol=1e-4)


@given(rows_and_options())
@settings(max_examples=100, deadline=None)
def test_rows_that_are_left_out_say_nothing(case: tuple[list[Row], Options]) -> None:
    """Whatever stands in a failed or padding row, it gets no advantage and changes no other."""
    rows, options = case
    nan = math.nan
    garbage = [row if row.counts else dataclasses.replace(row, r=nan, w=99.0, f=nan, k=nan) for row in rows]
    result = computed(garbage, options)
    counted = torch.tensor([row.counts for row in rows])
    assert torch.equal(result[~counted], torch.zeros_like(result[~counted]))
    if counted.any():
        alone = computed([row for row in rows if row.counts], options)
        torch.testing.assert_close(result[counted], alone, rtol=1e-4, atol=1e-4)


@given(rows_and_options())
@settings(max_examples=100, deadline=None)
def test_doubling_the_weight_doubles_the_classmate_share(case: tuple[list[Row], Options]) -> None:
    rows, options = case
    options = dataclasses.replace(options, batch_norm="none", clamp="none", consistency=False, weight=0.5)
    if options.estimator not in DECOUPLED_ESTIMATORS:
        options = dataclasses.replace(options, estimator="grpo_main_classmate_separated", main_weight=1.0)

    def share(weight: float) -> torch.Tensor:
        with_them = computed(rows, dataclasses.replace(options, weight=weight))
        return with_them - computed(rows, dataclasses.replace(options, weight=0.0))

    torch.testing.assert_close(share(1.0), 2 * share(0.5), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("estimator", [*DECOUPLED_ESTIMATORS, "grpo", "grpo_w_classmate"])
@pytest.mark.parametrize("segments", [False, True])
def test_the_classmates_move_the_advantages(estimator: str, segments: bool) -> None:
    """No estimator ignores them, and with segments each segment has an advantage of its own."""
    kind = recompute.STEP_WISE if segments else "vanilla_reward"
    options = Options(estimator=estimator, reward_type=kind, condition="always", weight=0.5)
    segment = (1, 2, 0) if segments else (0, 0, 0)
    utilities = ((0.0, 1.0), (1.0, 0.0)) if segments else ((), ())
    rows = [
        Row(group="a", r=r, w=w, f=r + 0.5 * w, segment=segment, utilities=u, response=(1, 1, 1))
        for r, w, u in ((1.0, 0.0, utilities[0]), (0.0, 1.0, utilities[1]), (0.0, 0.0, utilities[0]))
    ]
    first = computed(rows, options)
    silent = [dataclasses.replace(row, w=0.0, f=row.r, utilities=(0.0,) * len(row.utilities)) for row in rows]
    assert not torch.allclose(first, computed(silent, options))
    if segments and estimator != "grpo":
        assert (first[:, 0] != first[:, 1]).all()
        assert (first[:, 1] != first[:, 2]).any()
