"""Rows as they are made: the policy answers, the classmates read its CoT at once, the verifier scores both.

Decision: all of it happens per row, as soon as that row's response is complete, so that the classmates work while the
policy is still busy with longer answers. The reward is attached here, and upstream's reward workers have nothing to
do.

    actor_rollout_ref.rollout.agent.default_agent_loop=classmate_cot
    actor_rollout_ref.rollout.agent.agent_loop_manager_class=verl.experimental.agent_loop.classmate_agent_loop.ClassmateAgentLoopManager
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import ray
from tensordict import NonTensorStack, TensorDict

from verl.classmate.config import ClassmateRewardModelConfig, this_run
from verl.classmate.seeds import request_seed
from verl.classmate.views import derangement
from verl.experimental.agent_loop.row_loop import plain
from verl.experimental.agent_loop.row_reading import LESSON
from verl.experimental.agent_loop.row_worker import TEMPERATURE, ClassmateAgentLoopWorker
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ
from verl.utils import tensordict_utils as tu


class ClassmateAgentLoopManager(AgentLoopManagerTQ):
    """Upstream's manager, which tells each row what it needs to know of the run and of the rest of its batch."""

    excluded_classmates: Callable[[], frozenset[int]] = staticmethod(frozenset)
    """Readers that are out of the run; set by the trainer."""

    read_later: Mapping[bool, tuple[str, ...]] = {False: (), True: ()}
    """`Passes.reads_later`; set by the trainer."""

    read_beside: bool = False
    """Whether training rows are read while the trainer goes on, which later asks for `rewards`; set by the trainer."""

    lessons_first: Callable[[TensorDict], list[str]] | None = None
    """Where a teacher's students take turns with it: asks for a batch's lessons before the teacher writes; set by the
    trainer."""

    steps_per_epoch: int = 1
    """Of training; set by the trainer."""

    temperature: Callable[[int], float] | None = None
    """With which the answers of a training step are drawn; None: as the config says. Set by the trainer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(ClassmateAgentLoopWorker)
        self._reward = this_run(self.config).reward
        self._settled: list[ray.ObjectRef] = []

    def generate_sequences(self, prompts: TensorDict) -> None:
        """Dispatches a batch without waiting, with our columns added."""
        validate = bool(prompts["validate"]) if "validate" in prompts else False
        tu.assign_non_tensor_data(prompts, "is_validate", validate)
        tu.assign_non_tensor_data(prompts, "excluded_classmates", tuple(sorted(self.excluded_classmates())))
        tu.assign_non_tensor_data(prompts, "read_later", self.read_later[validate])
        tu.assign_non_tensor_data(prompts, "read_beside", self.read_beside and not validate)
        tu.assign_non_tensor_data(prompts, "epoch", epoch_of(int(prompts["global_steps"]), self.steps_per_epoch))
        if self.temperature is not None and not validate:
            # Workers have a copy of the config that they started with.
            tu.assign_non_tensor_data(prompts, TEMPERATURE, self.temperature(int(prompts["global_steps"])))
        prompts["partner"] = NonTensorStack(*partners(prompts, self._reward, validate=validate))
        if self.lessons_first is not None and self.read_later[validate]:
            prompts[LESSON] = NonTensorStack(*self.lessons_first(prompts))
        super().generate_sequences(prompts)

    def rewards(self) -> dict[str, dict[str, Any]]:
        """By key, the `reward_fields` of the step's rows; waits until the last of them is scored."""
        found: dict[str, dict[str, Any]] = {}
        for part in ray.get([worker.rewards.remote() for worker in self.agent_loop_workers]):
            found |= part
        return found

    def wait_for_rows(self, timeout_s: float) -> None:
        """Waits until the rows under way are made, at most `timeout_s` seconds.

        Raises:
            RuntimeError: a process that makes rows has died.
        """
        if not self._settled:
            self._settled = [worker.settled.remote() for worker in self.agent_loop_workers]
        ready, self._settled = ray.wait(self._settled, num_returns=len(self._settled), timeout=timeout_s)
        try:
            ray.get(ready)
        except ray.exceptions.RayActorError as error:
            raise RuntimeError("a process that makes rows died; logs/ray of the run folder says why") from error


def epoch_of(step: int, steps_per_epoch: int) -> int:
    """The epoch of a step, both counted by the trainer: steps from 1, epochs from 0."""
    return max(0, step - 1) // max(1, steps_per_epoch)


def partners(prompts: TensorDict, reward: ClassmateRewardModelConfig, *, validate: bool) -> list[str]:
    """The partner of each prompt, where the reward type pairs those of the batch, as JSON; empty if there is none.

    Validation pairs the same questions at every step, so that its curve has no noise of its own.
    """
    pairs = []
    if reward.classmate_cot_reward_configs.reward_type.partner == "batch":
        step = 0 if validate else int(prompts["global_steps"])
        pairs = derangement(len(prompts), request_seed(reward.seed, step, "partners", 0, 0, 0))
    if not pairs:
        return [""] * len(prompts)
    columns = {name: list(prompts[name]) for name in ("raw_prompt", "data_source", "reward_model", "extra_info")}
    return [
        json.dumps(
            {
                "question": columns["raw_prompt"][j][-1]["content"],
                "data_source": str(columns["data_source"][j]),
                "reward_model": columns["reward_model"][j],
                "extra_info": columns["extra_info"][j],
            },
            default=plain,
        )
        for j in pairs
    ]
