"""Every estimator of ours and its options against numbers that were computed by hand."""

import pytest
import torch

from tests.trainer.ppo.advantage.worked_example import GAMMA, C, R, columns, inputs, near, run
from verl.classmate.errors import ConfigError


@pytest.mark.guards("two scales in one sequence")
@pytest.mark.parametrize(
    ("condition", "on_cot", "elsewhere", "summed"),
    [
        ("always", (1.2193, -1.0097, 0.3808, -0.5905), 0.6953, (1.5188, -1.2577, 0.4743, -0.7355)),
        (
            "no_classmate_when_main_incorrect",
            (1.1955, -0.8256, 0.4557, -0.8256), 0.6406, (1.6160, -1.1160, 0.6160, -1.1160),
        ),
        (
            "neg_classmate_when_main_incorrect",
            (1.1215, -0.6934, 0.5507, -0.9788), 0.6221, (1.5614, -0.9654, 0.7667, -1.3627),
        ),
    ],
)  # fmt: skip
def test_gdpo_of_the_worked_example(condition: str, on_cot: tuple, elsewhere: float, summed: tuple) -> None:
    given_inputs = inputs(classmate=GAMMA[condition] * C)
    z, z_main = columns(run(given_inputs))
    assert z == near(*on_cot)
    assert z_main == near(elsewhere, -elsewhere, elsewhere, -elsewhere)
    z_all, same = columns(run(given_inputs, token_level_classmate_reward_mode="all"))
    assert z_all == same == near(*on_cot)
    raw, raw_main = columns(run(given_inputs, gdpo_batch_norm="none"))
    assert raw == near(*summed)
    assert raw_main == near(0.8660, -0.8660, 0.8660, -0.8660)


def test_gdpo_with_a_missing_classmate_score() -> None:
    """Row 4 has none: left out of A(W), its classmate part is 0. Whatever stands in its place is never read."""
    for garbage in (0.0, 100.0, float("nan")):
        classmate = torch.tensor([1.0, 0.0, 0.0, garbage])
        valid = torch.tensor([True, True, True, False])
        result = run(inputs(classmate=classmate, classmate_valid_B=valid))
        z, z_main = columns(result)
        assert z == near(1.1785, -0.9428, 0.4714, -0.7071)
        assert z_main == near(0.7071, -0.7071, 0.7071, -0.7071)


def test_grpo_of_the_worked_example() -> None:
    fused, same = columns(run(inputs(), adv_estimator="grpo"))
    assert fused == same == near(1.1802, -0.9986, 0.4539, -0.6355)
    centred, _ = columns(run(inputs(), adv_estimator="grpo", norm_adv_by_std_in_grpo=False))
    assert centred == near(0.8125, -0.6875, 0.3125, -0.4375)


def test_grpo_with_classmates_of_the_worked_example() -> None:
    """A(F) where classmates read, A(r) elsewhere; centred only, it is what Dr.GRPO makes of it."""
    on_cot, elsewhere = columns(run(inputs(), adv_estimator="grpo_w_classmate"))
    assert on_cot == near(1.1802, -0.9986, 0.4539, -0.6355)
    assert elsewhere == near(0.8660, -0.8660, 0.8660, -0.8660)
    all_cot, all_elsewhere = columns(
        run(inputs(), adv_estimator="grpo_w_classmate", token_level_classmate_reward_mode="all")
    )
    assert all_cot == all_elsewhere == near(1.1802, -0.9986, 0.4539, -0.6355)
    centred = run(inputs(), adv_estimator="grpo_w_classmate", norm_adv_by_std_in_grpo=False)
    on_cot, elsewhere = columns(centred)
    assert on_cot == near(0.8125, -0.6875, 0.3125, -0.4375)
    assert elsewhere == near(0.5, -0.5, 0.5, -0.5)


@pytest.mark.parametrize(
    ("condition", "classmate"),
    [
        ("always", (1.3056, -0.7833, -0.7833, 0.2611)),
        ("no_classmate_when_main_incorrect", (1.5, -0.5, -0.5, -0.5)),
        ("neg_classmate_when_main_incorrect", (1.3908, -0.1987, -0.1987, -0.9934)),
    ],
)
def test_separated_parts_of_the_worked_example(condition: str, classmate: tuple) -> None:
    given_inputs = inputs(classmate=GAMMA[condition] * C)
    main = [0.8660, -0.8660, 0.8660, -0.8660]
    both = [a + 0.5 * b for a, b in zip(main, classmate, strict=True)]
    for estimator in ("grpo_main_classmate_separated", "gdpo_wo_bn"):
        on_cot, elsewhere = columns(run(given_inputs, adv_estimator=estimator))
        assert on_cot == near(*both)
        assert elsewhere == near(*main)
        on_cot, elsewhere = columns(run(given_inputs, adv_estimator=estimator, token_level_classmate_reward_mode="all"))
        assert on_cot == elsewhere == near(*both)


def test_clamps_of_the_worked_example() -> None:
    correct = R >= 0.5
    for estimator in ("grpo_main_classmate_separated", "gdpo_wo_bn"):
        on_cot, elsewhere = columns(run(inputs(), adv_estimator=estimator, classmate_advantage_clamp="non_neg_cl"))
        assert on_cot == near(0.8660 + 0.6528, -0.8660, 0.8660, -0.73547)
        assert elsewhere == near(0.8660, -0.8660, 0.8660, -0.8660)
    harsh = inputs(weight=4.0, main_correct_B=correct)
    on_cot, elsewhere = columns(
        run(
            harsh,
            adv_estimator="grpo_main_classmate_separated",
            classmate_reward_weight=4.0,
            classmate_advantage_clamp="non_neg_adv_when_main_correct",
        )
    )
    expected = [0.8660 + 4 * 1.3056, -0.8660 - 4 * 0.7833, 0.0, -0.8660 + 4 * 0.2611]
    assert on_cot == pytest.approx(expected, abs=3e-4)
    assert elsewhere == near(0.8660, -0.8660, 0.8660, -0.8660)


def test_segments_of_a_row_have_advantages_of_their_own() -> None:
    """Two rows with two segments each: u = [1, 0], [0.5, missing]; the group of segments is 1, 0, 0.5."""
    nan = float("nan")
    given_inputs = inputs(
        base=torch.tensor([1.0, 0.0]),
        classmate=torch.tensor([1.0, 0.5]),
        segment_BR=torch.tensor([[1, 2, 0]] * 2),
        segment_reward_BK=torch.tensor([[1.0, 0.0], [0.5, nan]]),
        response_mask_BR=torch.ones(2, 3, dtype=torch.int64),
    )
    first, second = run(given_inputs, adv_estimator="grpo_main_classmate_separated").advantages_BR.tolist()
    assert first == near(0.7071 + 0.5, 0.7071 - 0.5, 0.7071)
    assert second == near(-0.7071, -0.7071, -0.7071)
    fused = torch.tensor([1.5, 1.0, 0.25])
    z = ((fused - fused.mean()) / fused.std()).tolist()
    first, second = run(given_inputs, adv_estimator="grpo_w_classmate").advantages_BR.tolist()
    assert first == near(z[0], z[1], 0.7071)
    assert second == near(z[2], -0.7071, -0.7071)
    with pytest.raises(ConfigError, match="cannot tell the segments"):
        run(given_inputs, token_level_classmate_reward_mode="all")


def test_grpo_normalises_unscored_rows_on_the_main_reward() -> None:
    valid = torch.tensor([True, True, True, False])
    z, _ = columns(run(inputs(classmate_valid_B=valid), adv_estimator="grpo"))
    fused = torch.tensor([1.5, 0.0, 1.0])
    expected = (fused - fused.mean()) / fused.std()
    assert z == near(*expected.tolist(), -0.8660)


def test_token_batch_norm_counts_tokens() -> None:
    """mu and sigma over S on CoT tokens and v A(r) on output tokens; here one row has three output tokens."""
    masks = {
        "response_mask_BR": torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 0, 0]]),
        "classmate_mask_BR": torch.tensor([[1, 0, 0, 0]] * 4),
    }
    result = run(inputs(**masks), gdpo_batch_norm="token").advantages_BR
    s, main = torch.tensor([1.5188, -1.2577, 0.4743, -0.7355]), torch.tensor([0.8660, -0.8660, 0.8660, -0.8660])
    tokens = torch.cat([s, main, main[2:3], main[2:3]])
    assert result[:, 0].tolist() == near(*((s - tokens.mean()) / tokens.std()).tolist())
    assert result[:, 1].tolist() == near(*((main - tokens.mean()) / tokens.std()).tolist())
    assert result[2, 1] == result[2, 2] == result[2, 3]


def test_main_weight() -> None:
    result = run(inputs(), main_reward_weight=0.0, classmate_reward_weight=1.0, gdpo_batch_norm="none")
    z, z_main = columns(result)
    assert z == near(1.3056, -0.7833, -0.7833, 0.2611)
    assert z_main == near(0, 0, 0, 0)
