"""The keys that a start gives a value if they are not set, and the config while that happens.

Decision: null in a YAML means not set. `Choices` remembers which keys were null, so that what is chosen for one key is
never taken for a user's value when the next one is chosen.

    >>> chosen = Choices(config)
    >>> chosen.set(MINI, 64)                     # changes nothing if the user has set it
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from verl.classmate.config import DEFAULT_SHARE
from verl.classmate.errors import ConfigError

ACTOR, ROLLOUT, REF = (f"actor_rollout_ref.{name}" for name in ("actor", "rollout", "ref"))
GPUS = "trainer.n_gpus_per_node"
BATCH, PROMPT, RESPONSE = (f"data.{name}" for name in ("train_batch_size", "max_prompt_length", "max_response_length"))
MINI, MICRO = f"{ACTOR}.ppo_mini_batch_size", f"{ACTOR}.ppo_micro_batch_size_per_gpu"
TOKENS = f"{ACTOR}.ppo_max_token_len_per_gpu"
LOG_PROB = tuple(f"{node}.log_prob_micro_batch_size_per_gpu" for node in (ROLLOUT, REF))
SHARE, HELPER_SHARE = (f"{node}.gpu_memory_utilization" for node in (ROLLOUT, "reward_model.classmate_vllm_configs"))
PARAM, OPTIMIZER = (f"{ACTOR}.fsdp_config.{name}_offload" for name in ("param", "optimizer"))
SCHEDULE = "reward_model.classmate_schedule"

USUAL: dict[str, Any] = {
    GPUS: 1,
    BATCH: 1024,
    PROMPT: 1024,
    RESPONSE: 1024,
    MINI: 256,
    MICRO: 16,
    **dict.fromkeys(LOG_PROB, 16),
    TOKENS: 16384,
    SHARE: DEFAULT_SHARE,
    HELPER_SHARE: DEFAULT_SHARE,
    PARAM: False,
    OPTIMIZER: False,
}
"""The value of a key if nothing speaks against it; the YAML holds null."""

MEMORY_KEYS = frozenset(
    {
        MICRO,
        *LOG_PROB,
        TOKENS,
        SHARE,
        HELPER_SHARE,
        PARAM,
        OPTIMIZER,
        SCHEDULE,
        # Keys that upstream or our YAML derives from these.
        *(f"{node}.log_prob_max_token_len_per_gpu" for node in (ROLLOUT, REF)),
        *(f"critic.{name}_micro_batch_size_per_gpu" for name in ("ppo", "forward")),
        *(f"critic.{name}_max_token_len_per_gpu" for name in ("ppo", "forward")),
        *(f"critic.fsdp.{name}_offload" for name in ("param", "optimizer")),
    }
)
"""Keys that decide only where and in what pieces numbers are computed: a plan for another GPU may change them."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The GPUs that a run can have."""

    gpus: int
    """On each node."""
    gpu_gib: float
    """Memory of each; 0 where it is not known."""


@dataclass(frozen=True, kw_only=True)
class Filled:
    """What a start decided."""

    lines: list[str]
    """For a person."""
    refusal: str | None = None
    """Why the run cannot fit into the GPUs' memory, with what to write; None if it fits or that is not known."""

    def refuse(self) -> None:
        """Refuses a run that cannot fit.

        Raises:
            ConfigError: with what to write instead.
        """
        if self.refusal is not None:
            raise ConfigError(self.refusal)


class Choices:
    """The config, the keys of it that are not set, and what was chosen for them."""

    def __init__(self, config: DictConfig) -> None:
        """Looks which keys are null.

        Args:
            config: a composed config, which is changed in place.
        """
        self.config = config
        self.open = {key for key in USUAL if self._is_there(key) and self.get(key) is None}
        self._made: dict[str, Any] = {}

    def get(self, key: str) -> Any:
        """The value of a key, set or chosen; None where there is none."""
        return OmegaConf.select(self.config, key, throw_on_missing=False)

    def counts(self, *keys: str) -> bool:
        """Whether all of them hold integers of 1 or more; the checks refuse other values."""
        return all(type(self.get(key)) is int and self.get(key) >= 1 for key in keys)

    def set(self, key: str, value: Any) -> None:
        """Chooses a value for a key that is still null."""
        if key in self.open and key not in self._made:
            OmegaConf.update(self.config, key, value)
            self._made[key] = value

    def replace(self, key: str, value: Any) -> None:
        """Writes what the user has set in another spelling."""
        with open_dict(self.config):
            OmegaConf.update(self.config, key, value)
        self.open.discard(key)

    def told(self) -> list[str]:
        """One line with the values that are not the usual ones; not those that the lines on memory tell, or that the
        run does not use."""
        unused = () if self.get(f"{ACTOR}.use_kl_loss") else ("actor_rollout_ref.ref.",)
        changed = [
            f"{key.rpartition('.')[2] if key not in LOG_PROB else key.removeprefix('actor_rollout_ref.')}={value}"
            for key, value in self._made.items()
            if value != USUAL[key] and key not in (SHARE, HELPER_SHARE, PARAM, OPTIMIZER) and not key.startswith(unused)
        ]
        return [f"not set      {', '.join(changed)}"] if changed else []

    def _is_there(self, key: str) -> bool:
        node, _, leaf = key.rpartition(".")
        parent = OmegaConf.select(self.config, node, throw_on_missing=False)
        return isinstance(parent, DictConfig) and leaf in parent


def has_critic(config: Mapping[str, Any]) -> bool:
    """Whether a critic is trained beside the policy. Asked of the config itself, since keys may still be open."""
    return config["algorithm"].get("adv_estimator") == "gae"


def sequence_parallel(chosen: Choices) -> int:
    """Ranks that share a row, by Ulysses; 1 where it is off."""
    typed = [f"{ACTOR}.ulysses_sequence_parallel_size", f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size"]
    return max([chosen.get(key) for key in typed if chosen.counts(key)], default=1)


def rows_of_rank(chosen: Choices) -> tuple[int, int] | None:
    """Rows of a mini-batch and of a whole batch on each rank that has rows of its own."""
    n = f"{ROLLOUT}.n"
    if not chosen.counts(n, "trainer.nnodes"):
        return None
    batch, mini, gpus = (chosen.get(key) or USUAL[key] for key in (BATCH, MINI, GPUS))
    if not all(type(value) is int and value >= 1 for value in (batch, mini, gpus)):
        return None
    ranks = gpus * chosen.get("trainer.nnodes")
    rows = mini * chosen.get(n)
    unit = math.lcm(ranks, rows)
    total = -(-batch * chosen.get(n) // unit) * unit
    split = max(1, ranks // sequence_parallel(chosen))
    return max(1, rows // split), max(1, total // split)


def prompts_that_split(pieces: int, rollouts: int) -> int:
    """The smallest number of prompts whose rows, `rollouts` of each, can be divided into `pieces` equal parts."""
    return pieces // math.gcd(pieces, rollouts)


def divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is at most `most`."""
    return next(divisor for divisor in range(min(number, most), 0, -1) if number % divisor == 0)
