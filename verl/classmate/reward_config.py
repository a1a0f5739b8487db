"""What the classmates are given and how their answers become a reward: `reward_model.classmate_cot_reward_configs`.

>>> ClassmateCotRewardConfig(classmate_reward_type="remove_wo_cot").reward_type.compares_with_question_alone
True
"""

from dataclasses import dataclass, field
from typing import Literal

from verl.classmate.cot import KeepSpec, parse_keep_rate
from verl.classmate.reward_types import REWARD_TYPES, RewardType
from verl.classmate.typed import COUNT, FRACTION, require, require_sum

REWARD_NODE = "reward_model.classmate_cot_reward_configs"

TokenMode = Literal["all", "classmate_partial"]
Clamp = Literal["none", "non_neg_cl", "non_neg_adv_when_main_correct"]

WEIGHTS_APART = (
    f"{REWARD_NODE}.classmate_weights: belongs to classmate_model_name_or_path_list; with reward_model.classmates "
    "write null, and each weight with its classmate: [{model: A, weight: 3}, {model: B, weight: 1}]"
)
"""What is said of weights in a list beside classmates that are not in one."""


@dataclass(frozen=True, kw_only=True)
class ClassmateCotRewardConfig:
    """What is handed to the classmates and how their answers become a reward."""

    classmate_model_name_or_path_list: tuple[str, ...] | None = None
    """Paths or hub names of the classmates: the short form of reward_model.classmates."""
    classmate_weights: tuple[float, ...] | None = None
    """Weights of the classmates of the list above in the mean over classmates; null: all equal."""
    self_play: Literal["none", "frozen", "live"] = "none"
    """The policy as one more classmate. frozen: with the weights that the run starts from (their files are checked at
    each save). live: answered by the policy's own engines, with the current weights and without a second copy."""
    self_play_model: str | None = field(default=None, metadata={"yaml": "${actor_rollout_ref.model.path}"})
    """The policy's start checkpoint, which is the classmate in self-play."""
    classmate_reward_weight: float = field(default=1.0, metadata={"at_least": 0})
    """Weight w of the classmate term: of its normalised advantage where the estimator normalises it on its own
    (gdpo_classmate, gdpo_wo_bn, grpo_main_classmate_separated), else of the reward."""
    main_reward_weight: float = 1.0
    """Weight of the main model's own normalised advantage in gdpo_classmate and gdpo_wo_bn."""
    classmate_reward_type: str = field(
        default="vanilla_reward",
        metadata={"choices": tuple(REWARD_TYPES), "value_aliases": {"vanilla": "vanilla_reward"}},
    )
    """What the classmates are given and what their scores are compared with: vanilla_reward hands over the CoT as
    main_cot_keep_rate cuts it, random_truncate a random part of it; remove_wo_cot and random_truncate_remove_wo_cot
    subtract the score that they reach from the question alone; random_truncate_step_wise_utility credits each segment
    of the CoT with what it adds; help_other_questions and help_other_similar_questions show the whole response as an
    example for another question of the batch, or for the row's paired_similar_q. likelihood scores, in training, how
    likely a classmate finds the ground truth behind the CoT, without an answer being written; likelihood_gain subtracts
    the same behind the question alone."""
    likelihood_reduction: Literal["mean", "sum"] = "mean"
    """Of the log-probabilities of the tokens that state the ground truth (likelihood types): their mean, which does not
    depend on how many tokens a classmate's tokenizer makes of them, or their sum, the log-probability of the whole."""
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
    """In training, do not ask classmates about rows whose classmate reward is 0 by use_classmate_main_cond, whatever
    they would answer; the verifier scores the main answer first. Classmate scores in the metrics are then those of the
    other rows. auto: unless a judge or a custom_reward_function scores the main answer, which may take long. False: ask
    about all rows."""
    main_correct_threshold: float | None = None
    """Directed main reward from which an answer counts as correct; null: the verifier's own."""
    token_level_classmate_reward_mode: TokenMode | None = None
    """Which tokens carry the classmate's advantage: all, or only those handed over (classmate_partial); null:
    classmate_partial, but all with verl's estimators, which see one fused reward."""
    classmate_advantage_clamp: Clamp = "none"
    """non_neg_cl: the classmate's normalised advantage is never negative; non_neg_adv_when_main_correct: no token has a
    negative advantage where the main answer reaches main_correct_threshold."""
    placebo: bool = False
    """For a control run: each row is trained on the classmate reward of another answer to the same prompt, drawn at
    random among those with the same condition factor. Metrics and dumps show the row's own."""
    main_cot_keep_rate: float | str = 1
    """How much of the CoT is handed over: 1, a ratio below 1 (from the start), first-N-tokens or last-N-tokens."""
    main_cot_keep_rate_min: float = 0.1
    """Smallest share of the CoT that random_truncate types hand over."""
    main_cot_keep_rate_max: float = 0.9
    """Largest share of the CoT that random_truncate types hand over."""
    step_wise_segments: int = field(default=2, metadata=COUNT)
    """Segments (K) of random_truncate_step_wise_utility: so many random cuts, and one request more per sample."""
    keep_unit: Literal["tokens", "words"] = "tokens"
    """What a ratio counts: tokens of the main model, or words."""
    classmate_question: Literal["full", "hint_removed"] = "full"
    """What the classmates are shown of a question in which the user hints at an answer: all of it, or what the row has
    in reward_model.prompt_without_hint (docs/data.md). Other rows are shown in full, and the policy sees every hint."""
    strip_answer: bool = False
    """Hand over a CoT that ends before it states the policy's own final answer, so that a classmate who copies the last
    line learns nothing. main_cot_keep_rate and random cuts then count what is left."""
    classmate_continue_mode: Literal["continue_cot", "immediate_answer"] = "continue_cot"
    """continue_cot: the classmate answers after a whole CoT, and may first finish a part of one. immediate_answer: the
    CoT is closed and the answer begun for it."""
    immediate_answer_cue: str | None = None
    """Beginning of the classmate's answer with immediate_answer, scored as part of the answer; null: the one that the
    row's verifier looks for ("The answer is", with hendrycks_math "The answer is \\boxed{", with a judge none)."""
    immediate_answer_max_new_tokens: int = field(default=32, metadata=COUNT)
    """Most tokens of one answer with immediate_answer, if max_new_tokens is not smaller still."""
    classmate_close_marker: Literal["auto", "always", "never"] = "auto"
    """Close marker after the CoT: auto closes a CoT whose end was handed over, and a part too for a classmate whose
    chat template has no CoT (it would never write the marker); always closes parts for all classmates, never for
    none."""
    classmate_template: Literal["thought_block", "open_assistant_turn"] = "thought_block"
    """Where the CoT stands: in the classmate's thought block, or without markers at the start of its answer."""
    unfinished_cot: Literal["no_classmate", "close_and_score"] = "no_classmate"
    """A CoT without close marker: no classmate reward, or closed and scored all the same."""
    empty_cot_score: Literal["lowest", "exclude"] = "lowest"
    """Classmate score of a row that shows nothing but blanks, about which nobody is asked. lowest: as if all
    classmates had got the verifier's lowest score; where a score is compared with that of the question alone, the CoT
    added nothing. exclude: none, so that an empty CoT escapes what a bad one gets."""
    unfinished_main_score: float | Literal["lowest", "exclude"] = "lowest"
    """Directed reward of a row without answer: the verifier's lowest, a number, or exclude the row."""
    add_consistency_reward: bool = False
    """Also reward agreement of the classmates' answers with the main model's own, whether or not it is right."""
    consistency_reward_weight: float = 1.0
    """Weight of that reward: of its normalised advantage or of the reward, as with classmate_reward_weight."""
    min_classmate_valid_fraction: float = field(default=0.5, metadata={**FRACTION, "write": "0.5"})
    """If fewer of the asked rows have a classmate score, the step trains on the main reward alone and logs an error."""
    host_classmate_name_to_url_json_fn: str = "outputs/host_classmate_models/classmate_model_mapping.json"
    """File with the servers of hosted classmates, {model: {outward_host, local_host, port}}, which
    my_scripts/host_classmate_model.sh writes; a change counts from the next step on."""

    def __post_init__(self) -> None:
        parse_keep_rate(self.main_cot_keep_rate, unit=self.keep_unit, path=f"{REWARD_NODE}.main_cot_keep_rate")
        require(
            self.reward_fusion != "weighted_average" or self.classmate_reward_weight <= 1,
            f"{REWARD_NODE}.classmate_reward_weight: {self.classmate_reward_weight} is above 1, which reward_fusion="
            "weighted_average (the default of sycophancy_classmate_cot) cannot use; write a number from 0 to 1, or "
            "reward_fusion=sum",
        )
        self._check_reward_type()
        weights = self.classmate_weights
        if weights is not None:
            names = self.classmate_model_name_or_path_list
            require(names is not None, WEIGHTS_APART)
            require(
                len(weights) == len(names or ()),
                f"{REWARD_NODE}.classmate_weights: {len(weights)} weights for {len(names or ())} entries of "
                "classmate_model_name_or_path_list; write one weight per classmate",
            )
            require(
                all(weight >= 0 for weight in weights) and sum(weights) > 0,
                f"{REWARD_NODE}.classmate_weights: {list(weights)} must not be negative nor all 0; write [1, 1]",
            )
            require_sum(weights, f"{REWARD_NODE}.classmate_weights")

    def _check_reward_type(self) -> None:
        name, kind = self.classmate_reward_type, self.reward_type
        low, high = self.main_cot_keep_rate_min, self.main_cot_keep_rate_max
        require(
            0 < low <= high <= 1,
            f"{REWARD_NODE}.main_cot_keep_rate_min and _max: {low} and {high} are not 0 < min <= max <= 1; "
            "write 0.1 and 0.9",
        )
        require(
            self.keep.kind == "all" or kind.shown == "keep_rate",
            f"{REWARD_NODE}.main_cot_keep_rate: has no meaning with classmate_reward_type={name}; write 1, or with "
            "random_truncate types main_cot_keep_rate_min and _max",
        )
        require(
            self.classmate_continue_mode != "immediate_answer" or self.classmate_close_marker != "never",
            f"{REWARD_NODE}.classmate_close_marker: never contradicts classmate_continue_mode=immediate_answer, which "
            "closes the CoT; write auto",
        )
        require(
            not self.strip_answer or kind.shown != "example",
            f"{REWARD_NODE}.strip_answer: with classmate_reward_type={name} the classmates are shown the whole "
            "response; write False",
        )
        if kind.by_likelihood:
            self._check_likelihood()
        require(
            not self.segments or self.token_level_classmate_reward_mode != "all",
            f"{REWARD_NODE}.token_level_classmate_reward_mode: {name} credits the segments of the CoT; write "
            "classmate_partial or null",
        )
        require(
            not self.placebo or not self.segments,
            f"{REWARD_NODE}.placebo: {name} has rewards for segments, which other answers do not have; write False, or "
            "classmate_reward_type=vanilla_reward",
        )
        require(
            not self.add_consistency_reward or kind.partner is None,
            f"{REWARD_NODE}.add_consistency_reward: with classmate_reward_type={name} the classmates answer another "
            "question than the main model; write False",
        )

    def _check_likelihood(self) -> None:
        name, condition = self.classmate_reward_type, self.use_classmate_main_cond
        require(
            self.classmate_close_marker != "never",
            f"{REWARD_NODE}.classmate_close_marker: never contradicts classmate_reward_type={name}, which puts an "
            "answer behind the closed CoT; write auto",
        )
        require(
            not self.add_consistency_reward,
            f"{REWARD_NODE}.add_consistency_reward: with classmate_reward_type={name} the classmates write no answers "
            "that could agree with the main model's; write False",
        )
        require(
            self.reward_type.compares_with_question_alone or condition in ("always", "no_classmate"),
            f"{REWARD_NODE}.use_classmate_main_cond: {condition} gives some rows 0 or the opposite sign, which is more "
            "than any score of classmate_reward_type=likelihood; write always, or "
            "classmate_reward_type=likelihood_gain",
        )
        require(
            self.reward_type.compares_with_question_alone or self.empty_cot_score == "exclude",
            f"{REWARD_NODE}.empty_cot_score: lowest needs a lowest score, which classmate_reward_type=likelihood does "
            "not have; write exclude, or classmate_reward_type=likelihood_gain",
        )

    @property
    def answers_at_once(self) -> bool:
        """Whether an answer always follows the closed CoT."""
        return self.classmate_continue_mode == "immediate_answer" or self.reward_type.by_likelihood

    def scores_likelihood(self, *, validate: bool) -> bool:
        """Whether a row's classmates write no answers, but say how likely they find the ground truth: in training."""
        return self.reward_type.by_likelihood and not validate

    @property
    def reward_type(self) -> RewardType:
        """What `classmate_reward_type` stands for."""
        return REWARD_TYPES[self.classmate_reward_type]

    @property
    def tests_main_answer(self) -> bool:
        """Whether anything depends on the main answer's being correct."""
        when_correct = self.classmate_advantage_clamp == "non_neg_adv_when_main_correct"
        return when_correct or self.use_classmate_main_cond.endswith("when_main_incorrect")

    @property
    def segments(self) -> int:
        """K where each segment has a reward, else 0."""
        return self.step_wise_segments if self.reward_type.shown == "segments" else 0

    @property
    def keep(self) -> KeepSpec:
        """`main_cot_keep_rate`, parsed."""
        return parse_keep_rate(self.main_cot_keep_rate, unit=self.keep_unit, path=f"{REWARD_NODE}.main_cot_keep_rate")
