"""The other question of a row, with which a policy's response is to help: a partner from the same batch."""

from typing import Any

import numpy as np
import pytest
from tensordict import NonTensorStack, TensorDict

from verl.classmate.config import from_mapping
from verl.classmate.row import Task
from verl.experimental.agent_loop.classmate_agent_loop import partners
from verl.utils import tensordict_utils as tu


def paired(
    prompts: TensorDict, *, kind: str = "help_other_questions", seed: int = 0, validate: bool = False
) -> list[str]:
    reward = from_mapping(
        {"seed": seed, "classmate_cot_reward_configs": {"classmate_reward_type": kind}}, require_classmates=False
    )
    return partners(prompts, reward, validate=validate)


def batch(size: int, *, step: int = 5) -> TensorDict:
    rows = {
        "raw_prompt": [[{"role": "user", "content": f"question {i}"}] for i in range(size)],
        "data_source": ["hinted_arithmetic"] * size,
        "reward_model": [{"ground_truth": str(i)} for i in range(size)],
        "extra_info": [{"index": np.int64(i)} for i in range(size)],
    }
    prompts = TensorDict({}, batch_size=size)
    for name, column in rows.items():
        prompts[name] = NonTensorStack(*column)
    tu.assign_non_tensor_data(prompts, "global_steps", step)
    return prompts


@pytest.mark.parametrize("size", [2, 3, 8])
def test_every_question_is_paired_with_another_one_of_its_batch(size: int) -> None:
    found = [Task.from_json(text) for text in paired(batch(size))]
    asked = [int(partner.question.removeprefix("question ")) for partner in found if partner]
    assert sorted(asked) == list(range(size))
    assert not any(i == other for i, other in enumerate(asked))
    for partner, other in zip(found, asked, strict=True):
        assert partner is not None
        assert (partner.reward_model, partner.extra_info) == ({"ground_truth": str(other)}, {"index": other})
        assert partner.data_source == "hinted_arithmetic"


def test_pairs_follow_from_seed_and_step_fixed_in_validation() -> None:
    def pairs(step: int, **options: Any) -> list[str]:
        return paired(batch(8, step=step), **options)

    assert pairs(5) == pairs(5)
    assert len({tuple(pairs(step)) for step in range(20)}) > 15
    assert pairs(5) != pairs(5, seed=1)
    assert pairs(5, validate=True) == pairs(9, validate=True)


@pytest.mark.guards("derangement of one")
def test_a_batch_of_one_and_other_reward_types_have_no_partner() -> None:
    assert paired(batch(1)) == [""]
    assert paired(batch(3), kind="vanilla_reward") == [""] * 3
    assert Task.from_json("") is None
