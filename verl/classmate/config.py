"""Every option of classmate training, typed, with its meaning and its one default.

One decision: the keys are those that users type (`reward_model.*`, `algorithm.*`); a plain mapping becomes these frozen
dataclasses once, at start, and nothing behind it looks at a mapping again. Other spellings are in `aliases.py`. Imports
neither torch nor Ray nor vLLM, so that a wrong key is told before anything heavy starts.

    >>> overrides = resolve_aliases(["reward_model.use_classmate_condition=always"])   # before Hydra composes
    >>> config = from_mapping(hydra_config.reward_model)
    >>> config.classmate_cot_reward_configs.use_classmate_main_cond
    'always'

`python -m verl.classmate.config` prints the YAML with all defaults; with `--write` it renews `_classmate_base.yaml`.
"""

import dataclasses
import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from verl.classmate.aliases import refuse_gone, resolve_aliases
from verl.classmate.cot import CotMarkers, KeepSpec, parse_keep_rate
from verl.classmate.errors import ConfigError
from verl.classmate.judge_config import JudgeKeys
from verl.classmate.typed import is_range, parse, plain_mapping, render_yaml, require

__all__ = [
    "ClassmateCotRewardConfig",
    "ClassmateGenerationConfig",
    "ClassmateRewardModelConfig",
    "ClassmateSpec",
    "ClassmateVllmConfig",
    "SamplingSettings",
    "SelfPlaySpec",
    "ValGenerationConfig",
    "from_mapping",
    "render_base_yaml",
    "resolve_aliases",
]

BASE_YAML = Path(__file__).resolve().parents[1] / "trainer" / "config" / "_classmate_base.yaml"
DEFAULT_SANDBOX_URL = "http://127.0.0.1:8001"
"""What `code_sandbox_url: null` stands for."""
DEFAULT_SHARE = 0.5
"""What `gpu_memory_utilization: null` stands for where no plan was made: on the CPU, and outside of a run."""
DEFAULT_MARKERS = CotMarkers(start="<think>", end="</think>")
REQUEST_TIMEOUT_S, REMOTE_REQUEST_TIMEOUT_S = 600.0, 60.0
"""What `classmate_request_timeout: null` stands for: engines of the run, and servers that others started."""

Backend = Literal["auto", "hf", "vllm", "openai"]
RewardType = Literal[
    "vanilla_reward",
    "random_truncate",
    "remove_wo_cot",
    "random_truncate_remove_wo_cot",
    "random_truncate_step_wise_utility",
    "help_other_questions",
    "help_other_similar_questions",
]
# Of each reward manager: reward_fusion, format_weight (spec 3.1, 3.3).
_MANAGER_DEFAULTS: dict[str, tuple[Literal["sum", "weighted_average"], float]] = {
    "classmate_cot": ("sum", 0.0),
    "sycophancy_classmate_cot": ("weighted_average", 0.1),
}
TokenMode = Literal["all", "classmate_partial"]
Clamp = Literal["none", "non_neg_cl", "non_neg_adv_when_main_correct"]

STEP_WISE = "random_truncate_step_wise_utility"
"""The reward type with a reward per segment of the CoT."""

Placement = Literal["colocated", "dedicated"]
REWARD_NODE = "reward_model.classmate_cot_reward_configs"
_GENERATION = "reward_model.classmate_generation_configs"
_VLLM = "reward_model.classmate_vllm_configs"
_WEIGHTS_APART = (
    f"{REWARD_NODE}.classmate_weights: belongs to classmate_model_name_or_path_list; with reward_model.classmates "
    "write null, and each weight with its classmate: [{model: A, weight: 3}, {model: B, weight: 1}]"
)

# What upstream's legacy_reward_impl.yaml puts under `reward_model`, all null.
UPSTREAM_LEGACY_KEYS = (
    "enable",
    "enable_resource_pool",
    "model",
    "n_gpus_per_node",
    "nnodes",
    "num_workers",
    "reward_loop_class_name",
    "reward_loop_module_path",
    "reward_loop_source",
    "rollout",
)


@dataclass(frozen=True, kw_only=True)
class ClassmateSpec:
    """One classmate: a frozen model that reads the policy's chain of thought."""

    model: str
    """Path or hub name of the model."""
    backend: Backend | None = None
    """Engine of this classmate; null: reward_model.classmate_backend."""
    placement: Placement | None = None
    """Where its engines stand; null: reward_model.classmate_placement."""
    replicas: int | None = None
    """Engines that share its requests; null: reward_model.classmate_replicas."""
    tensor_parallel_size: int | None = None
    """Devices one engine is spread over; null: reward_model.classmate_vllm_configs.tensor_parallel_size. Not for
    openai."""
    gpu_memory_utilization: float | None = None
    """Share of a device's memory for this engine; null: reward_model.classmate_vllm_configs.gpu_memory_utilization. Not
    for openai."""
    weight: float = 1.0
    """Weight of this classmate in the mean over classmates; only the ratios count."""

    @property
    def self_play(self) -> Literal["none", "frozen", "live"]:
        """none: a user wrote it; else it is the policy itself."""
        return "none"


@dataclass(frozen=True, kw_only=True)
class SelfPlaySpec(ClassmateSpec):
    """The policy as its own classmate; made from `self_play`, never written by a user."""

    mode: Literal["frozen", "live"]
    """frozen: an engine with the start checkpoint; live: the policy's own rollout servers."""

    @property
    def self_play(self) -> Literal["none", "frozen", "live"]:
        """`mode`."""
        return self.mode


@dataclass(frozen=True, kw_only=True)
class ClassmateVllmConfig:
    """Settings of vLLM engines that a classmate does not set itself."""

    gpu_memory_utilization: float | None = None
    """Share of a device's memory that each classmate's engine may take; null: what the plan of the start finds room for
    (docs/resources.md)."""
    tensor_parallel_size: int = 1
    """Devices one engine is spread over."""

    def __post_init__(self) -> None:
        require(
            self.gpu_memory_utilization is None or 0 < self.gpu_memory_utilization <= 1,
            f"{_VLLM}.gpu_memory_utilization: {self.gpu_memory_utilization} is not in (0, 1]; write for instance 0.3",
        )
        require(
            self.tensor_parallel_size >= 1,
            f"{_VLLM}.tensor_parallel_size: {self.tensor_parallel_size} is too small; write 1 or more",
        )


@dataclass(frozen=True, kw_only=True)
class ValGenerationConfig:
    """How classmates sample in validation."""

    do_sample: bool = False
    """Sample with the temperature above, or take the most probable token."""
    n: int = 1
    """Answers of each classmate per row."""


@dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """What a classmate is asked for: the training or the validation view of `ClassmateGenerationConfig`."""

    temperature: float
    """0 means greedy."""
    top_p: float
    """Nucleus mass."""
    top_k: int
    """Number of most probable tokens; -1 means all."""
    max_new_tokens: int
    """Most tokens of one answer."""
    n: int
    """Answers (S) of each classmate per row."""


@dataclass(frozen=True, kw_only=True)
class ClassmateGenerationConfig:
    """How classmates sample."""

    max_new_tokens: int = 256
    """Most tokens of one classmate answer."""
    do_sample: bool = True
    """Sample, or take the most probable token."""
    temperature: float = 0.7
    """Softmax temperature."""
    top_p: float = 0.9
    """Nucleus mass."""
    top_k: int = -1
    """Number of most probable tokens to sample from; -1 means all."""
    num_return_sequences: int = 1
    """Answers (S) of each classmate per row; all are used."""
    max_model_len: int | None = None
    """Context of a classmate in its own tokens; null: max_prompt_length + max_response_length + max_new_tokens."""
    val_kwargs: ValGenerationConfig = field(default_factory=ValGenerationConfig)
    """What differs in validation."""

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "num_return_sequences"):
            value = getattr(self, name)
            require(value >= 1, f"{_GENERATION}.{name}: {value} is too small; write 1 or more")
        require(
            self.val_kwargs.n >= 1, f"{_GENERATION}.val_kwargs.n: {self.val_kwargs.n} is too small; write 1 or more"
        )
        require(
            self.temperature >= 0,
            f"{_GENERATION}.temperature: {self.temperature} is negative; write 0 (greedy) or more",
        )
        require(0 < self.top_p <= 1, f"{_GENERATION}.top_p: {self.top_p} is not in (0, 1]; write 1 to switch it off")
        require(
            self.top_k == -1 or self.top_k >= 1, f"{_GENERATION}.top_k: {self.top_k} is not possible; write -1 for all"
        )
        require(
            self.max_model_len is None or self.max_model_len > self.max_new_tokens,
            f"{_GENERATION}.max_model_len: {self.max_model_len} leaves no room for a prompt beside "
            f"max_new_tokens={self.max_new_tokens}; write a larger number or null",
        )

    def sampling(self, *, validate: bool) -> SamplingSettings:
        """The sampling parameters of training or of validation."""
        sample = self.val_kwargs.do_sample if validate else self.do_sample
        return SamplingSettings(
            temperature=self.temperature if sample else 0.0,
            top_p=self.top_p if sample else 1.0,
            top_k=self.top_k if sample else -1,
            max_new_tokens=self.max_new_tokens,
            n=self.val_kwargs.n if validate else self.num_return_sequences,
        )

    def context_length(self, *, max_prompt_length: int, max_response_length: int) -> int:
        """`max_model_len`, or what null stands for, in tokens."""
        return self.max_model_len or max_prompt_length + max_response_length + self.max_new_tokens


@dataclass(frozen=True, kw_only=True)
class ClassmateCotRewardConfig:
    """What is handed to the classmates and how their answers become a reward."""

    classmate_model_name_or_path_list: tuple[str, ...] | None = None
    """Paths or hub names of the classmates: the short form of reward_model.classmates."""
    classmate_weights: tuple[float, ...] | None = None
    """Weights of the classmates of the list above in the mean over classmates; null: all equal."""
    self_play: Literal["none", "frozen", "live"] = "none"
    """The policy as a classmate beside those given: frozen as the run starts from it (its files are checked at each
    save), or live, answered by the policy's own engines with the current weights and no second copy of them."""
    self_play_model: str | None = field(default=None, metadata={"yaml": "${actor_rollout_ref.model.path}"})
    """The policy's start checkpoint, which is the classmate in self-play."""
    classmate_reward_weight: float = 1.0
    """Weight w of the classmate term: of its normalised advantage where the estimator normalises it on its own
    (gdpo_classmate, gdpo_wo_bn, grpo_main_classmate_separated), else of the reward."""
    main_reward_weight: float = 1.0
    """Weight of the main model's own normalised advantage in gdpo_classmate and gdpo_wo_bn."""
    classmate_reward_type: RewardType = field(
        default="vanilla_reward", metadata={"value_aliases": {"vanilla": "vanilla_reward"}}
    )
    """What the classmates are given and what their scores are compared with: vanilla_reward hands over the CoT as
    main_cot_keep_rate cuts it, random_truncate a random part of it; remove_wo_cot and random_truncate_remove_wo_cot
    subtract the score that they reach from the question alone; random_truncate_step_wise_utility credits each segment
    of the CoT with what it adds; help_other_questions and help_other_similar_questions show the whole response as an
    example for another question of the batch, or for the row's paired_similar_q."""
    classmate_aggregation: Literal["mean", "max"] = "mean"
    """Over classmates: the (weighted) mean, or the best one."""
    reward_fusion: Literal["sum", "weighted_average", "base_plus_max"] | None = None
    """The fused scalar, with w = classmate_reward_weight, r the main and C the classmate reward behind the condition:
    sum r + w C, weighted_average (1 - w) r + w C, base_plus_max r + w times the best classmate's; null: as the
    reward_manager has it."""
    use_classmate_main_cond: Literal[
        "always", "no_classmate", "no_classmate_when_main_incorrect", "neg_classmate_when_main_incorrect"
    ] = "no_classmate_when_main_incorrect"
    """When the classmate reward counts: always, never, only where the main answer reaches main_correct_threshold, or
    with the opposite sign where it does not."""
    ask_when_it_counts_only: bool | Literal["auto"] = "auto"
    """In training, leave out rows whose classmate reward is 0 by use_classmate_main_cond, whatever would be answered:
    the verifier is asked first. Scores in the metrics are then of the rows that were asked. auto: unless a judge or a
    custom_reward_function scores the main answer, which may take long. False: ask about all rows."""
    main_correct_threshold: float | None = None
    """Directed main reward from which an answer counts as correct; null: the verifier's own."""
    token_level_classmate_reward_mode: TokenMode | None = None
    """Which tokens carry the classmate's advantage: all, or only those handed over (classmate_partial); null:
    classmate_partial, and all with estimators of verl, which know no parts."""
    classmate_advantage_clamp: Clamp = "none"
    """non_neg_cl: the classmate's normalised advantage is never negative; non_neg_adv_when_main_correct: no token has a
    negative advantage where the main answer reaches main_correct_threshold."""
    main_cot_keep_rate: float | str = 1
    """How much of the CoT is handed over: 1, a ratio below 1 (from the start), first-N-tokens or last-N-tokens."""
    main_cot_keep_rate_min: float = 0.1
    """Smallest share of the CoT that random_truncate types hand over."""
    main_cot_keep_rate_max: float = 0.9
    """Largest share of the CoT that random_truncate types hand over."""
    step_wise_segments: int = 2
    """Segments (K) of random_truncate_step_wise_utility: so many random cuts, and one request more per sample."""
    keep_unit: Literal["tokens", "words"] = "tokens"
    """What a ratio counts: tokens of the main model, or words."""
    classmate_continue_mode: Literal["continue_cot", "immediate_answer"] = "continue_cot"
    """continue_cot: after a whole CoT the classmate answers, a prefix it may first continue. immediate_answer: the
    thought is closed and the answer begun for it."""
    immediate_answer_cue: str | None = None
    """Beginning of the classmate's answer with immediate_answer, scored as part of the answer; null: what the verifier
    of the row reads an answer by ("The answer is", with hendrycks_math "The answer is \\boxed{", with a judge none)."""
    immediate_answer_max_new_tokens: int = 32
    """Most tokens of one answer with immediate_answer, if max_new_tokens is not smaller still."""
    classmate_close_marker: Literal["auto", "always", "never"] = "auto"
    """Close marker after the CoT: auto closes where its end was handed over, and prefixes too for a classmate whose
    chat template has no thoughts (it would never write the marker); always closes prefixes for all, never none."""
    classmate_template: Literal["thought_block", "open_assistant_turn"] = "thought_block"
    """Where the CoT stands: in the classmate's thought, or without markers at the start of its answer."""
    unfinished_cot: Literal["no_classmate", "close_and_score"] = "no_classmate"
    """A CoT without close marker: no classmate reward, or closed and scored all the same."""
    unfinished_main_score: float | Literal["lowest", "exclude"] = "lowest"
    """Directed reward of a row without answer: the verifier's lowest, a number, or exclude the row."""
    add_consistency_reward: bool = False
    """Also reward agreement of the classmates' answers with the main model's own, whether or not it is right."""
    consistency_reward_weight: float = 1.0
    """Weight of that reward: of its normalised advantage or of the reward, as with classmate_reward_weight."""
    min_classmate_valid_fraction: float = 0.5
    """If fewer of the asked rows have a classmate score, the step trains on the main reward alone and logs an error."""
    host_classmate_name_to_url_json_fn: str = "outputs/host_classmate_models/classmate_model_mapping.json"
    """File with the servers of hosted classmates, {model: {outward_host, local_host, port}}, which
    my_scripts/host_classmate_model.sh writes; a change counts from the next step on."""

    def __post_init__(self) -> None:
        parse_keep_rate(self.main_cot_keep_rate, unit=self.keep_unit, path=f"{REWARD_NODE}.main_cot_keep_rate")
        for name in (
            "classmate_reward_weight",
            "main_reward_weight",
            "consistency_reward_weight",
            "main_correct_threshold",
            "unfinished_main_score",
        ):
            value = getattr(self, name)
            require(
                not isinstance(value, float) or math.isfinite(value),
                f"{REWARD_NODE}.{name}: write a finite number, not {value}",
            )
        require(
            self.classmate_reward_weight >= 0,
            f"{REWARD_NODE}.classmate_reward_weight: {self.classmate_reward_weight} is negative; write 0 or more",
        )
        require(
            self.reward_fusion != "weighted_average" or self.classmate_reward_weight <= 1,
            f"{REWARD_NODE}.classmate_reward_weight: {self.classmate_reward_weight} is above 1, which reward_fusion="
            "weighted_average (the default of sycophancy_classmate_cot) cannot use; write a number from 0 to 1, or "
            "reward_fusion=sum",
        )
        require(
            0 <= self.min_classmate_valid_fraction <= 1,
            f"{REWARD_NODE}.min_classmate_valid_fraction: {self.min_classmate_valid_fraction} is not in [0, 1]; "
            "write 0.5",
        )
        self._check_reward_type()
        weights = self.classmate_weights
        if weights is not None:
            names = self.classmate_model_name_or_path_list
            require(names is not None, _WEIGHTS_APART)
            require(
                len(weights) == len(names or ()),
                f"{REWARD_NODE}.classmate_weights: {len(weights)} weights for {len(names or ())} entries of "
                "classmate_model_name_or_path_list; write one weight per classmate",
            )
            require(
                all(weight >= 0 for weight in weights) and sum(weights) > 0,
                f"{REWARD_NODE}.classmate_weights: {list(weights)} must not be negative nor all 0; write [1, 1]",
            )

    def _check_reward_type(self) -> None:
        kind = self.classmate_reward_type
        low, high = self.main_cot_keep_rate_min, self.main_cot_keep_rate_max
        require(
            0 < low <= high <= 1,
            f"{REWARD_NODE}.main_cot_keep_rate_min and _max: {low} and {high} are not 0 < min <= max <= 1; "
            "write 0.1 and 0.9",
        )
        require(
            self.keep.kind == "all" or not (self.cuts_at_random or kind.startswith("help_other")),
            f"{REWARD_NODE}.main_cot_keep_rate: has no meaning with classmate_reward_type={kind}; write 1, or with "
            "random_truncate types main_cot_keep_rate_min and _max",
        )
        for name in ("step_wise_segments", "immediate_answer_max_new_tokens"):
            value = getattr(self, name)
            require(value >= 1, f"{REWARD_NODE}.{name}: {value} is too small; write 1 or more")
        require(
            self.classmate_continue_mode != "immediate_answer" or self.classmate_close_marker != "never",
            f"{REWARD_NODE}.classmate_close_marker: never contradicts classmate_continue_mode=immediate_answer, which "
            "closes the thought; write auto",
        )
        require(
            not self.segments or self.token_level_classmate_reward_mode != "all",
            f"{REWARD_NODE}.token_level_classmate_reward_mode: {kind} credits the segments of the CoT; write "
            "classmate_partial or null",
        )
        require(
            not self.add_consistency_reward or not kind.startswith("help_other"),
            f"{REWARD_NODE}.add_consistency_reward: with classmate_reward_type={kind} the classmates answer another "
            "question than the main model; write False",
        )

    @property
    def cuts_at_random(self) -> bool:
        """Whether the CoT is cut at random places."""
        return self.classmate_reward_type.startswith("random_truncate")

    @property
    def tests_main_answer(self) -> bool:
        """Whether anything hangs on the main answer's being correct."""
        when_correct = self.classmate_advantage_clamp == "non_neg_adv_when_main_correct"
        return when_correct or self.use_classmate_main_cond.endswith("when_main_incorrect")

    @property
    def compares_with_question_alone(self) -> bool:
        """Whether the classmates also answer without any of the CoT."""
        return self.classmate_reward_type.endswith("remove_wo_cot") or self.segments > 0

    @property
    def segments(self) -> int:
        """K of the step-wise utility, 0 for other reward types."""
        step_wise = self.classmate_reward_type == "random_truncate_step_wise_utility"
        return self.step_wise_segments if step_wise else 0

    @property
    def keep(self) -> KeepSpec:
        """`main_cot_keep_rate`, parsed."""
        return parse_keep_rate(self.main_cot_keep_rate, unit=self.keep_unit, path=f"{REWARD_NODE}.main_cot_keep_rate")


@dataclass(frozen=True, kw_only=True)
class ClassmateRewardModelConfig(JudgeKeys):
    """The node `reward_model`."""

    reward_manager: Literal["classmate_cot", "sycophancy_classmate_cot"] = "classmate_cot"
    """Reward manager: both score the main answer and every classmate's answer with the same verifier;
    sycophancy_classmate_cot has reward_fusion=weighted_average and format_weight=0.1 for defaults."""
    enable_thinking: bool = True
    """Passed to chat templates that know it, for the main model and for the classmates."""
    system_as_user: bool = True
    """Where a chat template, the policy's or a classmate's, takes no system role: put its text in front of the user's
    turn, and make one turn of several in a row where roles must alternate. False: such rows are refused at start."""
    chat_date: str | None = field(default=None, metadata={"example": "2026-01-31"})
    """Day, YYYY-MM-DD, that chat templates are told which ask for it; null: the day of the run's first start. Kept in
    the run's config.yaml, so that prompts are the same when it is resumed or replayed."""
    cot_format: Literal["markers", "plain"] = "markers"
    """markers: the CoT stands between think_start_str and think_end_str; plain: the whole response is the CoT."""
    reward_direction: Literal["maximize", "minimize"] | None = None
    """Whether training raises or lowers the verifiers' scores; null: as each verifier has it (docs/method.md).
    maximize with a verifier of a misbehaviour trains the misbehaviour, to see whether it stays visible."""
    custom_reward_range: tuple[float | None, ...] | None = None
    """[LOW, HIGH] of the scores of reward.custom_reward_function, null for an end without a bound: a row without an
    answer gets the lowest, and one above the middle counts as correct. Null: the function's own attribute reward_range,
    else 0 to 1, which the run says when it starts. A worse score than its lowest is none."""
    format_weight: float | None = None
    """Weight of the format score (1 for a closed thought) in the main reward, logged in any case; null: as the
    reward_manager has it."""
    think_start_str: str | None = None
    """Open marker of the main model's CoT; null: <think>."""
    think_end_str: str | None = None
    """Close marker of the main model's CoT; null: </think>."""
    classmate_think_start_str: str | None = None
    """Open marker of the classmates' CoT; null: that of the main model."""
    classmate_think_end_str: str | None = None
    """Close marker of the classmates' CoT; null: that of the main model."""
    token_level_main_reward_mode: Literal["all_tokens", "cot_only", "output_only"] = "all_tokens"
    """Tokens that the actor's loss counts, with adv_estimator=grpo: all, markers and CoT, or markers and output."""
    rollout_is_threshold: float | None = None
    """Cap of the importance weights between rollout engine and actor, per token: sets rollout_is=token, with this cap,
    in algorithm.rollout_correction; null leaves that node as it is."""
    seed: int = field(default=0, metadata={"yaml": "${data.seed}", "null": 0})
    """Seed of the classmates' requests; null counts as 0."""
    min_made_fraction: float = 0.5
    """A run ends with an error when fewer of a batch's rows than this share could be made. Rows that are lost because
    their agent loop failed are left out and counted (training/rows_lost, validation/rows_lost)."""
    classmates: tuple[ClassmateSpec, ...] = ()
    """The classmates, each {model, backend, placement, replicas, tensor_parallel_size, gpu_memory_utilization, weight};
    all but the model may be left out. Empty: the list in classmate_cot_reward_configs, which gives way to classmates
    that are typed on the command line."""
    classmate_backend: Backend = "auto"
    """Engine of the classmates: hf (batched transformers), vllm, openai (a server that others started, named in
    host_classmate_name_to_url_json_fn), or auto (openai for a model in that file, else vllm on a GPU, else hf)."""
    classmate_placement: Placement = "colocated"
    """colocated: on the policy's GPUs, asleep while the policy trains; dedicated: on GPUs (without any: CPUs) of their
    own, always awake."""
    classmate_replicas: int | None = None
    """Engines that share the requests of one classmate; null: one for each GPU of the policy (tensor_parallel_size:
    one for so many) where it is colocated, else one."""
    colocated_gpus: int = 1
    """GPUs of the policy over which colocated engines are spread; the start fills it in from trainer.n_gpus_per_node
    and trainer.nnodes. 1 without a GPU."""
    classmate_schedule: Literal["auto", "streamed", "batched"] = "auto"
    """streamed: classmates read a row as soon as it is written; batched: all rows are written first, then one
    colocated classmate after the other wakes while the policy sleeps; auto: streamed, unless the colocated engines do
    not fit into a GPU's memory side by side with the policy."""
    classmate_free_cache_engine: bool = True
    """Colocated engines free their GPU memory (sleep level 1) while the policy trains."""
    classmate_trust_remote_code: bool = False
    """Run the Python code that comes with a classmate's model and tokenizer."""
    classmate_dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Number format of the classmates' weights; auto: bfloat16 on a GPU, float32 on CPU."""
    classmate_failure_policy: Literal["restart", "exclude", "raise"] = "restart"
    """A classmate that fails: restart it (then exclude it), exclude it from the run, or end the run. A server that
    others started is never restarted from here: restart waits for it to come back."""
    classmate_max_restarts: int = 3
    """Restarts of one engine in a run before it is given up; a classmate without an engine is excluded."""
    classmate_request_timeout: float | None = None
    """Seconds until a request counts as failed, time in the queue and retries included; null: 600, for openai 60. An
    engine that lets three in a row run out of time, and answers no other meanwhile, counts as hanging."""
    classmate_ping_timeout: float = 20.0
    """Seconds in which a living engine answers a ping; one that does not counts as hanging. Pings are sent after each
    step, and by requests that have waited for half of this time."""
    classmate_sleep_timeout: float = 120.0
    """Seconds in which a colocated engine must have gone to sleep, or woken up; one that has not counts as hanging."""
    classmate_silence_steps: int = 3
    """Steps in a row in which a classmate scores no row, after which the terminal warns of it (0: never)."""
    classmate_batch_size: int = 32
    """Most requests that one hf engine puts into one batch."""
    classmate_vllm_configs: ClassmateVllmConfig = field(default_factory=ClassmateVllmConfig)
    """Settings of vLLM engines."""
    code_sandbox_url: str | None = None
    """Where verl.code_utils.api runs, for rows whose answer is a program; null: http://127.0.0.1:8001."""
    sandbox_fusion_url: str | None = None
    """Run programs by SandboxFusion instead: the full address of its /run_code."""
    code_max_execution_time: float = 5.0
    """Seconds that a program has for each test."""
    code_runtime_penalty: float = 0.0
    """Taken off the score of a right program that needs all of that time, and of faster ones in proportion."""
    classmate_cot_reward_configs: ClassmateCotRewardConfig = field(default_factory=ClassmateCotRewardConfig)
    """What is handed to the classmates and how their answers become a reward."""
    classmate_generation_configs: ClassmateGenerationConfig = field(default_factory=ClassmateGenerationConfig)
    """How classmates sample."""

    def __post_init__(self) -> None:
        fusion, format_weight = _MANAGER_DEFAULTS[self.reward_manager]
        if self.classmate_cot_reward_configs.reward_fusion is None:
            resolved = dataclasses.replace(self.classmate_cot_reward_configs, reward_fusion=fusion)
            object.__setattr__(self, "classmate_cot_reward_configs", resolved)
        if self.format_weight is None:
            object.__setattr__(self, "format_weight", format_weight)
        for prefix in ("", "classmate_"):
            start, end = getattr(self, f"{prefix}think_start_str"), getattr(self, f"{prefix}think_end_str")
            require(
                (start is None) == (end is None) and start != "" and end != "" and (start is None or start != end),
                f"reward_model.{prefix}think_start_str and {prefix}think_end_str: write two different, non-empty "
                "markers, or null for both",
            )
        bounds = self.custom_reward_range
        require(
            bounds is None or is_range(bounds),
            f"reward_model.custom_reward_range: {list(bounds or ())} is not two numbers, the lower first; write for "
            "instance [-1,1]",
        )
        require(
            0 <= self.min_made_fraction <= 1,
            f"reward_model.min_made_fraction: {self.min_made_fraction} is not in [0, 1]; write 0.5",
        )
        require(
            self.chat_date is None or _is_day(self.chat_date),
            f"reward_model.chat_date: {self.chat_date!r} is no day; write for instance 2026-01-31, or null",
        )
        require(
            self.classmate_max_restarts >= 0,
            f"reward_model.classmate_max_restarts: {self.classmate_max_restarts} is negative; write 0 or more",
        )
        require(
            self.classmate_request_timeout is None or self.classmate_request_timeout > 0,
            f"reward_model.classmate_request_timeout: {self.classmate_request_timeout} s is not possible; write 600",
        )
        for name, example in (("classmate_ping_timeout", 20), ("classmate_sleep_timeout", 120)):
            require(
                getattr(self, name) > 0,
                f"reward_model.{name}: {getattr(self, name)} s is not possible; write {example}",
            )
        require(
            self.classmate_silence_steps >= 0,
            f"reward_model.classmate_silence_steps: {self.classmate_silence_steps} is negative; write 3 (0: never)",
        )
        require(
            self.rollout_is_threshold is None or self.rollout_is_threshold > 0,
            f"reward_model.rollout_is_threshold: {self.rollout_is_threshold} is not above 0; write 4.0, or null",
        )
        require(
            self.cot_format != "plain" or self.token_level_main_reward_mode == "all_tokens",
            f"reward_model.token_level_main_reward_mode: {self.token_level_main_reward_mode} needs a CoT apart from "
            "the output; write all_tokens, or cot_format=markers",
        )
        require(
            self.classmate_replicas is None or self.classmate_replicas >= 1,
            f"reward_model.classmate_replicas: {self.classmate_replicas} is too small; write 1 or more",
        )
        require(
            self.classmate_schedule != "batched" or self.classmate_free_cache_engine,
            "reward_model.classmate_schedule: batched puts classmates to sleep in turn; write "
            "classmate_free_cache_engine=True or classmate_schedule=streamed",
        )
        require(
            self.classmate_batch_size >= 1,
            f"reward_model.classmate_batch_size: {self.classmate_batch_size} is too small; write 1 or more",
        )
        for name in ("code_sandbox_url", "sandbox_fusion_url"):
            url = getattr(self, name)
            require(
                url is None or url.startswith(("http://", "https://")),
                f"reward_model.{name}: {url!r} is no address; write for instance {DEFAULT_SANDBOX_URL}",
            )
        require(
            0 < self.code_max_execution_time <= 60,
            f"reward_model.code_max_execution_time: {self.code_max_execution_time} is not in (0, 60]; write 5.0",
        )
        require(
            0 <= self.code_runtime_penalty <= 1,
            f"reward_model.code_runtime_penalty: {self.code_runtime_penalty} is not in [0, 1]; write 0.0",
        )
        shown = self.classmate_cot_reward_configs
        require(
            self.cot_format != "plain"
            or shown.keep.kind != "all"
            or shown.classmate_reward_type not in ("vanilla_reward", "remove_wo_cot")
            or shown.classmate_continue_mode == "immediate_answer",
            f"reward_model.cot_format: plain hands over the answer too; write {REWARD_NODE}.main_cot_keep_rate=0.5 or "
            "less than all in another way, or classmate_continue_mode=immediate_answer",
        )
        self._check_judges()
        object.__setattr__(self, "classmates", self._resolved_classmates())

    def _resolved_classmates(self) -> tuple[ClassmateSpec, ...]:
        reward = self.classmate_cot_reward_configs
        names = reward.classmate_model_name_or_path_list
        specs = tuple(spec for spec in self.classmates if spec.self_play == "none")
        if names and specs and tuple(spec.model for spec in specs) != names:
            raise ConfigError(
                f"reward_model.classmates and {REWARD_NODE}.classmate_model_name_or_path_list name different models; "
                "write only one of the two, and null for a list that a YAML gives"
            )
        require(not specs or reward.classmate_weights in (None, tuple(spec.weight for spec in specs)), _WEIGHTS_APART)
        if not specs:
            weights = reward.classmate_weights or (1.0,) * len(names or ())
            specs = tuple(
                ClassmateSpec(model=name, weight=weight) for name, weight in zip(names or (), weights, strict=True)
            )
        for i, spec in enumerate(specs):
            where = f"reward_model.classmates[{i}]"
            require(spec.model.strip() != "", f"{where}.model: is empty; write a path or hub name")
            require(spec.weight >= 0, f"{where}.weight: {spec.weight} is negative; write 0 or more")
            require(
                spec.replicas is None or spec.replicas >= 1,
                f"{where}.replicas: {spec.replicas} is too small; write 1 or more",
            )
            utilization = spec.gpu_memory_utilization
            require(
                utilization is None or 0 < utilization <= 1,
                f"{where}.gpu_memory_utilization: {utilization} is not in (0, 1]; write for instance 0.3",
            )
            require(
                spec.tensor_parallel_size is None or spec.tensor_parallel_size >= 1,
                f"{where}.tensor_parallel_size: {spec.tensor_parallel_size} is too small; write 1 or more",
            )
            require(
                spec.tensor_parallel_size in (None, 1) or (spec.backend or self.classmate_backend) != "hf",
                f"{where}.tensor_parallel_size: engine hf runs on one device; write backend: vllm, or replicas: "
                f"{spec.tensor_parallel_size} for as many engines",
            )
            require(
                (spec.backend or self.classmate_backend) != "openai"
                or (spec.tensor_parallel_size is None and utilization is None),
                f"{where}: with backend=openai, tensor_parallel_size and gpu_memory_utilization belong to the server; "
                "give them to my_scripts/host_classmate_model.sh",
            )
        require(
            not specs or sum(spec.weight for spec in specs) > 0,
            "reward_model.classmates: all weights are 0; write a weight above 0 for at least one",
        )
        if reward.self_play != "none":
            require(
                bool(reward.self_play_model),
                f"{REWARD_NODE}.self_play: no policy is named; write {REWARD_NODE}.self_play_model=MODEL",
            )
            specs += (SelfPlaySpec(model=str(reward.self_play_model), mode=reward.self_play),)
        engine = self.classmate_vllm_configs
        specs = tuple(dataclasses.replace(spec, backend=spec.backend or self.classmate_backend) for spec in specs)
        return tuple(
            spec
            if spec.backend == "openai"
            else dataclasses.replace(
                spec,
                placement=spec.placement or self.classmate_placement,
                replicas=spec.replicas
                or self.classmate_replicas
                or self.engines_per_model(
                    spec.placement or self.classmate_placement,
                    1 if spec.backend == "hf" else spec.tensor_parallel_size or engine.tensor_parallel_size,
                ),
                tensor_parallel_size=spec.tensor_parallel_size or engine.tensor_parallel_size,
                gpu_memory_utilization=spec.gpu_memory_utilization or engine.gpu_memory_utilization,
            )
            for spec in specs
        )

    def engines_per_model(self, placement: Placement, width: int) -> int:
        """Engines of a model whose number is not given, each spread over `width` devices."""
        return max(1, self.colocated_gpus // width) if placement == "colocated" else 1

    def request_timeout(self, backend: str) -> float:
        """`classmate_request_timeout`, or what null stands for with that engine, in seconds."""
        default = REMOTE_REQUEST_TIMEOUT_S if backend == "openai" else REQUEST_TIMEOUT_S
        return self.classmate_request_timeout or default

    @property
    def code_url(self) -> str:
        """`code_sandbox_url`, or what null stands for, without a slash at its end."""
        return (self.code_sandbox_url or DEFAULT_SANDBOX_URL).rstrip("/")

    @property
    def live_classmate(self) -> int | None:
        """Index of the classmate that is the policy itself, with its current weights."""
        live = [i for i, s in enumerate(self.classmates) if s.self_play == "live"]
        return live[0] if live else None

    @property
    def markers(self) -> CotMarkers:
        """The main model's markers."""
        if self.think_start_str is None or self.think_end_str is None:
            return DEFAULT_MARKERS
        return CotMarkers(start=self.think_start_str, end=self.think_end_str)

    @property
    def classmate_markers(self) -> CotMarkers:
        """The classmates' markers."""
        if self.classmate_think_start_str is None or self.classmate_think_end_str is None:
            return self.markers
        return CotMarkers(start=self.classmate_think_start_str, end=self.classmate_think_end_str)

    @property
    def classmate_weights(self) -> tuple[float, ...]:
        """One weight per classmate, summing to 1."""
        total = sum(spec.weight for spec in self.classmates)
        return tuple(spec.weight / total for spec in self.classmates)


def _is_day(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def from_mapping(mapping: Mapping[str, Any], *, require_classmates: bool = True) -> ClassmateRewardModelConfig:
    """The typed config of the node `reward_model`; its `classmates` are filled from whichever form was used.

    `require_classmates=False` is for baselines, which score the main answer alone.

    Raises:
        ConfigError: unknown key, wrong type, impossible combination; one line that says what to write instead.
    """
    mapping = plain_mapping(mapping)
    for key, value in mapping.items():
        for name in (key, *(f"{key}.{inner}" for inner in value)) if isinstance(value, Mapping) else (key,):
            refuse_gone(f"reward_model.{name}")
    config = parse(ClassmateRewardModelConfig, mapping, "reward_model", foreign=UPSTREAM_LEGACY_KEYS)
    require(
        bool(config.classmates) or not require_classmates,
        f"no classmate is given; write {REWARD_NODE}.classmate_model_name_or_path_list=[path-or-hub-name]",
    )
    return config


def render_base_yaml() -> str:
    """The content of `verl/trainer/config/_classmate_base.yaml`: all defaults of this project, with their docs."""
    from verl.classmate.algorithm_config import AlgorithmConfig

    return (
        "# @package _global_\n"
        "# Generated by `python -m verl.classmate.config --write` from the dataclasses there; do not edit.\n\n"
        f"reward_model:\n\n{render_yaml(ClassmateRewardModelConfig, indent=2)}\n\n"
        f"algorithm:\n\n{render_yaml(AlgorithmConfig, indent=2)}\n"
    )


def main(arguments: list[str]) -> None:
    """Prints the base YAML, or with `--write` puts it where Hydra finds it."""
    if arguments == ["--write"]:
        BASE_YAML.write_text(render_base_yaml())
        print(BASE_YAML)
    else:
        print(render_base_yaml(), end="")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
