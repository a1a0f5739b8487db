"""The studies that there are, each a value. `dataclasses.replace` makes others of them.

study = STUDIES["cot_transfer"]
"""

from verl.data_preprocessing.worlds.presets import WORLDS
from verl.evaluation.study.spec import Arm, Study

SEEDS = tuple(range(11, 19))
"""None of them was looked at before the predictions were written down."""
TUNING_SEEDS = (0, 1)
"""For what is tuned; no study reports them."""
STEPS = 80

_REWARDS = "reward_model.classmate_cot_reward_configs"

_MAX_RESPONSE = 64
_COST = "reward_model.length_cost"
_TOKEN_COST = round(0.1 / 48 * _MAX_RESPONSE, 4)
"""0.1 for 48 tokens; the option counts in the longest response."""

_KL_COEFFICIENT = 0.01
"""The best of `cot_transfer_kl`."""

_SETTINGS = (
    "hardware=cpu",
    # The same estimator in all arms, so that a baseline differs in the classmates' term alone.
    "algorithm.adv_estimator=gdpo_classmate",
    "data.train_batch_size=8",
    "data.max_prompt_length=128",
    f"data.max_response_length={_MAX_RESPONSE}",
    "actor_rollout_ref.rollout.n=8",
    "actor_rollout_ref.rollout.temperature=1.0",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=64",
    "actor_rollout_ref.actor.optim.lr=2e-4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=8",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=64",
    "reward_model.classmate_generation_configs.max_new_tokens=24",
    "reward_model.classmate_batch_size=128",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
    "trainer.console=plain",
)

_BOTH = ("classmate_a", "classmate_b")

_BASELINE = Arm(name="baseline", title="baseline", entry="baseline")
_LENGTH_BONUS = Arm(
    name="length_bonus",
    title="baseline, paid for length",
    entry="baseline",
    overrides=(f"{_COST}={-_TOKEN_COST}",),
)
_PLACEBO = Arm(
    name="placebo",
    title="two classmates, scores permuted",
    entry="classmates",
    classmates=_BOTH,
    overrides=(f"{_REWARDS}.placebo=true",),
)
_ONE = Arm(name="one", title="one classmate", entry="classmates", classmates=_BOTH[:1])
_TWO = Arm(name="two", title="two classmates", entry="classmates", classmates=_BOTH)


def _kl(name: str, title: str, coefficient: float) -> Arm:
    node = "actor_rollout_ref.actor"
    return Arm(
        name=name,
        title=title,
        entry="baseline",
        overrides=(
            f"{node}.use_kl_loss=true",
            f"{node}.kl_loss_type=low_var_kl",
            f"{node}.kl_loss_coef={coefficient:g}",
            "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=64",
        ),
    )


_COT_TRANSFER = Study(
    name="cot_transfer",
    world=WORLDS["thought_styles"],
    arms=(
        _BASELINE,
        _kl("kl", "baseline, tuned KL", _KL_COEFFICIENT),
        _LENGTH_BONUS,
        _PLACEBO,
        _ONE,
        _TWO,
        Arm(
            name="likelihood",
            title="two classmates, likelihood",
            entry="classmates",
            classmates=_BOTH,
            overrides=(f"{_REWARDS}.classmate_reward_type=likelihood_gain",),
        ),
        Arm(
            name="self_play",
            title="the policy as its own classmate",
            entry="classmates",
            overrides=(f"{_REWARDS}.self_play=live",),
        ),
        Arm(name="insider", title="an insider as classmate", entry="classmates", classmates=("insider",)),
        Arm(
            name="insider_and_one",
            title="an insider and one classmate",
            entry="classmates",
            classmates=("insider", "classmate_a"),
        ),
        Arm(
            name="baseline_cost",
            title="baseline, tokens cost",
            entry="baseline",
            overrides=(f"{_COST}={_TOKEN_COST}",),
        ),
        Arm(
            name="two_cost",
            title="two classmates, tokens cost",
            entry="classmates",
            classmates=_BOTH,
            overrides=(f"{_COST}={_TOKEN_COST}",),
        ),
    ),
    seeds=SEEDS,
    steps=STEPS,
    settings=_SETTINGS,
    learner_arms=("baseline", "length_bonus", "two", "insider", "baseline_cost", "two_cost"),
)

_COT_TRANSFER_CIPHER = Study(
    name="cot_transfer_cipher",
    world=WORLDS["thought_styles_cipher"],
    arms=(_BASELINE, _LENGTH_BONUS, _TWO),
    seeds=SEEDS,
    steps=STEPS,
    settings=_SETTINGS,
    learner_arms=("baseline", "length_bonus", "two"),
)

_UNEVEN_STEPS = Study(
    name="uneven_steps",
    world=WORLDS["uneven_steps"],
    arms=(_BASELINE, _PLACEBO, _ONE, _TWO),
    seeds=SEEDS,
    steps=STEPS,
    settings=(*_SETTINGS, f"{_COST}={_TOKEN_COST}"),
    strips_by_clause=False,
)

_KL_TUNING = Study(
    name="cot_transfer_kl",
    world=WORLDS["thought_styles"],
    arms=tuple(
        _kl(f"kl_{i}", f"baseline, KL {coefficient:g}", coefficient)
        for i, coefficient in enumerate((0.001, 0.01, 0.03, 0.1))
    ),
    seeds=TUNING_SEEDS,
    steps=STEPS,
    settings=_SETTINGS,
)

STUDIES = {study.name: study for study in (_COT_TRANSFER, _COT_TRANSFER_CIPHER, _UNEVEN_STEPS, _KL_TUNING)}
"""The studies of `python -m verl.evaluation.study`, by name."""
