"""Every option of the pipeline, with the names of the original document.

One decision: what belongs to one stage is an option of that stage's own config, and is written here as a mapping of
those options that differ; it is read at the start, so that a wrong key of the last stage is told before the first runs.

    >>> ReasoningPipelineConfig(base_model_name="models/base", pure_rl={"group_size": 8}, rejection={"num_samples": 8})
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from verl.classmate.errors import ConfigError
from verl.classmate.typed import parse
from verl.reasoning.choices import check_choices
from verl.reasoning.distill.config import DistillationConfig
from verl.reasoning.evaluation import EvalSettings
from verl.reasoning.prm.config import PRMConfig
from verl.reasoning.rejection_config import RejectionSamplingConfig
from verl.reasoning.rl.config import PureRLConfig
from verl.reasoning.rl.cot import CoTConfig
from verl.reasoning.sft.settings import FineTuneSettings

STAGES = ("pure_rl", "cot", "rejection", "prm", "distill")
"""In their order."""
Use = Literal["rank", "filter"]
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class ReasoningPipelineConfig:
    """Options of `ReasoningModelPipeline` (docs/reasoning.md)."""

    base_model_name: str = "EleutherAI/gpt-neo-125M"
    """Path or hub name of the model that all stages start from; it must solve some of the problems."""
    student_model_name: str | None = None
    """What is distilled into; None: the base model."""
    enable_pure_rl: bool = True
    """Stage 1: reinforcement learning with the reward alone."""
    enable_cot_training: bool = True
    """Stage 2: reinforcement learning with a reward of the chain of thought."""
    enable_rejection_sampling: bool = True
    """Stage 3: sampling, and fine-tuning on what is accepted."""
    enable_prm_training: bool = True
    """Stage 4: a model that judges steps."""
    enable_distillation: bool = True
    """Stage 5: the best model so far teaches the student."""
    pure_rl_iterations: int = 500
    """Training steps of stage 1."""
    cot_iterations: int = 300
    """Training steps of stage 2."""
    rejection_samples: int = 16
    """Most samples of a problem in stage 3."""
    prm_epochs: float = 3
    """Passes of stage 4."""
    sft_after_rejection: bool = True
    """Whether stage 3 fine-tunes on what it has accepted."""
    readers: tuple[str, ...] = ()
    """Models that read each accepted solution; only those from which all of them answer right are kept
    (classmate-approved traces)."""
    use_prm_for: tuple[Use, ...] = ("rank", "filter")
    """What the judge of steps is used for once it is trained: which right solutions of stage 3 are taken first, and
    which are left out where a problem has others; the base model is fine-tuned on them once more. Empty: nothing."""
    step_signal: Literal["auto", "head", "likelihood", "both"] = "auto"
    """Who judges steps: the head that stage 4 trains, the likelihood of a step's least likely token under the model
    that stage 3 made, or the smaller of both; auto: the best of them on held-out labels."""
    output_dir: str = "./reasoning_output"
    """What stages leave, one folder each; a rerun goes on there."""
    resume: bool = True
    """Skip stages whose outputs are there and current; False: make all of them again."""
    save_checkpoints: bool = True
    """Keep checkpoints within stages 1, 2 and 5, so that a kill loses less."""
    checkpoint_interval: int = 100
    """Steps between them."""
    num_test_problems: int = 50
    """Most held-out problems of an evaluation; fewer than 200 tell little."""
    dev_share: float = 0.1
    """Share of the training problems that is set aside, to choose the best model on."""
    sampled_problems: int | None = None
    """Most training problems of stage 3; None: all."""
    prm_solutions: int = 2000
    """Most solutions of stage 3 that stage 4 learns from, right and wrong ones."""
    evaluation_temperature: float = 0.6
    """Of the samples of an evaluation."""
    cache_samples: bool = True
    """Keep what models wrote on disk, so that nothing is drawn twice."""
    backend: Literal["auto", "hf", "vllm"] = "auto"
    """Who samples: transformers in this process, or vLLM on Ray; auto: vllm on a GPU."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where models run."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Of training; auto: bf16 on a GPU, else fp32."""
    gradient_checkpointing: bool = False
    """In all training: less memory, more time."""
    seed: int = 0
    """Of everything that is drawn."""
    pure_rl: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `PureRLConfig`."""
    cot: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `CoTConfig`."""
    rejection: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `RejectionSamplingConfig`."""
    fine_tune: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `FineTuneSettings`, for stage 3."""
    prm: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `PRMConfig`."""
    distill: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `DistillationConfig`."""
    eval: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `EvalSettings`."""

    def __post_init__(self) -> None:
        for name in ("pure_rl_iterations", "cot_iterations", "rejection_samples", "checkpoint_interval"):
            _require(getattr(self, name) >= 1, f"{name}={getattr(self, name)} is no count; write 1 or more")
        for name in ("num_test_problems", "prm_solutions"):
            _require(getattr(self, name) >= 1, f"{name}={getattr(self, name)} is no count; write 1 or more")
        _require(self.prm_epochs > 0, f"prm_epochs={self.prm_epochs} learns nothing; write 1 or more")
        _require(0 < self.dev_share < 1, f"dev_share={self.dev_share} is no share; write for instance 0.1")
        unknown = sorted(set(self.use_prm_for) - {"rank", "filter"})
        _require(not unknown, f"use_prm_for has {unknown}; write some of rank, filter")
        _require(bool(self.stages), "all stages are switched off; enable one")
        _require(
            "rejection" in self.stages or "prm" not in self.stages,
            "enable_prm_training learns from the solutions of stage 3; write enable_rejection_sampling=True, or "
            "enable_prm_training=False",
        )
        check_choices(self)
        # Each is read once here, for its errors.
        self.rl_config("model"), self.cot_config("model"), self.rejection_config(), self.fine_tuning(), self.judging()
        self.prm_config("model", Path("prm")), self.distillation("teacher", "student", Path("distilled"))

    @property
    def stages(self) -> tuple[str, ...]:
        """Those that are enabled, in their order."""
        enabled = {
            "pure_rl": self.enable_pure_rl,
            "cot": self.enable_cot_training,
            "rejection": self.enable_rejection_sampling,
            "prm": self.enable_prm_training,
            "distill": self.enable_distillation,
        }
        return tuple(name for name in STAGES if enabled[name])

    @property
    def reranks(self) -> bool:
        """Whether the base model is fine-tuned once more, on what the judge of steps has chosen."""
        wanted = {"rejection", "prm"} <= set(self.stages) and self.sft_after_rejection
        return wanted and bool(self.use_prm_for)

    def rl_config(self, model: str, output_dir: Path | str = "rl") -> PureRLConfig:
        """Of stage 1."""
        return _with(
            PureRLConfig, "pure_rl", self.pure_rl, model_name=model, **self._rl(output_dir, self.pure_rl_iterations)
        )

    def cot_config(self, model: str, output_dir: Path | str = "cot") -> CoTConfig:
        """Of stage 2."""
        return _with(CoTConfig, "cot", self.cot, model_name=model, **self._rl(output_dir, self.cot_iterations))

    def _rl(self, output_dir: Path | str, steps: int) -> dict[str, Any]:
        interval = min(steps, self.checkpoint_interval) if self.save_checkpoints else steps
        return {
            "output_dir": str(output_dir),
            "save_interval": interval,
            "seed": self.seed,
            "device": self.device,
            "precision": self.precision,
            "gradient_checkpointing": self.gradient_checkpointing,
        }

    def rejection_config(self) -> RejectionSamplingConfig:
        """Of stage 3."""
        given = {"num_samples": self.rejection_samples, "seed": self.seed}
        return _with(RejectionSamplingConfig, "rejection", self.rejection, **given)

    def fine_tuning(self) -> FineTuneSettings:
        """Of stage 3."""
        return _with(
            FineTuneSettings,
            "fine_tune",
            self.fine_tune,
            seed=self.seed,
            device=self.device,
            precision=self.precision,
            gradient_checkpointing=self.gradient_checkpointing,
        )

    def prm_config(self, model: str, output_dir: Path) -> PRMConfig:
        """Of stage 4."""
        return _with(
            PRMConfig,
            "prm",
            self.prm,
            base_model_name=model,
            num_epochs=self.prm_epochs,
            output_dir=output_dir,
            seed=self.seed,
            device=self.device,
            precision="fp32" if self.precision == "auto" else self.precision,
            gradient_checkpointing=self.gradient_checkpointing,
        )

    def distillation(self, teacher: str, student: str, output_dir: Path) -> DistillationConfig:
        """Of stage 5."""
        return _with(
            DistillationConfig,
            "distill",
            self.distill,
            teacher_model_name=teacher,
            student_model_name=student,
            output_dir=str(output_dir),
            save_every=self.checkpoint_interval,
            seed=self.seed,
            device=self.device,
            precision=self.precision,
            gradient_checkpointing=self.gradient_checkpointing,
        )

    def judging(self) -> EvalSettings:
        """Of evaluations."""
        return _with(EvalSettings, "eval", self.eval, temperature=self.evaluation_temperature, seed=self.seed)


def read_config(mapping: Mapping[str, Any]) -> ReasoningPipelineConfig:
    """The config from plain values, as a YAML file has them.

    Raises:
        ConfigError: a key that is unknown, or a value that is not possible.
    """
    nested = {"pure_rl", "cot", "rejection", "fine_tune", "prm", "distill", "eval"}
    given = {key: value for key, value in mapping.items() if key not in nested}
    plain = parse(_Plain, given, "config")
    values: dict[str, Any] = {one.name: getattr(plain, one.name) for one in dataclasses.fields(_Plain)}
    values |= {key: dict(mapping[key] or {}) for key in nested & set(mapping)}
    return ReasoningPipelineConfig(**values)


def _with(kind: type[_T], node: str, given: Mapping[str, Any], **known: Any) -> _T:
    """A stage's config from what is written for it and what follows from the pipeline's.

    Raises:
        ConfigError: names the key.
    """
    names = {one.name for one in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in given:
        _require(key in names, f"{node}.{key}: unknown key; known keys: {', '.join(sorted(names))}")
    # A YAML file has lists where the config has tuples.
    plain = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    try:
        return kind(**{**{key: value for key, value in known.items() if key in names}, **plain})
    except TypeError as error:
        raise ConfigError(f"{node}: {error}") from None
    except ValueError as error:
        raise ConfigError(f"{node}: {error}") from None


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


_Plain: Any = dataclasses.make_dataclass(
    "_Plain",
    [
        (one.name, one.type, dataclasses.field(default=one.default))
        for one in dataclasses.fields(ReasoningPipelineConfig)
        if one.default is not dataclasses.MISSING
    ],
    frozen=True,
    kw_only=True,
)
"""The options that are no mappings, as `typed.parse` reads them."""
