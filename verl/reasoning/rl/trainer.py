"""`PureRLTrainer`: reinforcement learning on nothing but a reward, by the project's own trainer.

One decision: `train` starts the run that everybody starts, as a command; the same problems, reward and config find
their run again, so that a training that was killed goes on and one that has finished is not trained twice.

    >>> trainer = PureRLTrainer(PureRLConfig(model_name="models/policy"), reward_fn)
    >>> result = trainer.train(problems, num_iterations=100)
    >>> result.checkpoint, result.history[-1]["mean_reward"], result.best_step

docs/reasoning_rl.md
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl.reasoning.records import Problem, as_problems
from verl.reasoning.rewards import as_reward
from verl.reasoning.rl import history, running
from verl.reasoning.rl.config import PureRLConfig
from verl.reasoning.rl.overrides import InputFiles, overrides
from verl.reasoning.rl.reward_file import identity, write_reward
from verl.reasoning.rl.rows import write_rows
from verl.reasoning.rl.trajectories import Sampler, advantages_of
from verl.trainer.run.checkpoints import step_folders
from verl.trainer.run.model_folders import model_of

Problems = Sequence[Problem | str | Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """What a training left."""

    checkpoint: Path
    """The policy after the last step, a folder that transformers loads."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """A mapping for each step (`history.NAMES`)."""
    best_step: int = 0
    """Of the saved ones; `run_folder/global_step_N/actor/huggingface` is its policy."""
    run_folder: Path = Path()
    """Config, metrics, rows, checkpoints and logs."""
    alarms: list[str] = field(default_factory=list)
    """What a person should look at."""


class PureRLTrainer:
    """Trains a policy on a reward."""

    name = "pure_rl"
    """Of its run folders."""

    def __init__(self, config: PureRLConfig, reward_fn: Callable[..., Any]) -> None:
        """Nothing is loaded before it is needed.

        Args:
            config: of the training.
            reward_fn: a function of (problem text, solution text), or of (Problem, Solution, RewardContext); what it
                cannot score it leaves out by None or an exception (`verl.reasoning.rewards.as_reward`).

        Raises:
            TypeError: the reward takes neither two nor three arguments.
        """
        self.config = config
        self.reward_fn = reward_fn
        self.reward = as_reward(reward_fn)
        self.iteration = 0
        """Iterations of `update_hyperparameters`, or of the last training."""
        self.num_iterations = 1000
        """Over which schedules without a decay run; the last training's."""
        self.result: TrainResult | None = None
        """Of the last training."""
        self._start: Path | str = config.model_name
        self._sampler: Sampler | None = None

    def train(
        self, problems: Problems, num_iterations: int = 1000, validation_problems: Problems | None = None
    ) -> TrainResult:
        """Trains, or goes on with, or looks up a training of these problems.

        Args:
            problems: texts, mappings with `problem` and `answer`, or records.
            num_iterations: steps.
            validation_problems: scored every `save_interval` steps.

        Raises:
            ValueError: no problem, or a setting that is not possible (`ConfigError`).
            TrainingFailed: the run failed; the message names the log.
        """
        if num_iterations < 1:
            raise ValueError(f"num_iterations={num_iterations}; write 1 or more")
        known = as_problems(problems)
        validation = as_problems(validation_problems or ())
        if not known:
            raise ValueError("there is no problem to train on; write [{'problem': ..., 'answer': ...}]")
        config = dataclasses.replace(self.config, model_name=str(self._start))
        folder = self._folder(config, known, validation, num_iterations)
        files = self._write_inputs(folder.with_name(f"{folder.name}.inputs"), known, validation)
        arguments = overrides(config, files, iterations=num_iterations, folder=folder)
        running.run(arguments, folder, iterations=num_iterations, log_interval=config.log_interval)
        self.iteration = self.num_iterations = num_iterations
        self.result = self._result(folder)
        self._sampler = None
        return self.result

    def _folder(
        self, config: PureRLConfig, problems: Sequence[Problem], validation: Sequence[Problem], iterations: int
    ) -> Path:
        """The run's own: that of an earlier start of the same training, or a new one."""
        told = dataclasses.asdict(config) | {"output_dir": "", "resume": True, "log_interval": 0}
        of = [dataclasses.asdict(one) for one in (*problems, *validation)]
        content = [told, of, len(problems), iterations, identity(self.reward_fn), self._prompt_template]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:10]
        folder = Path(config.output_dir).expanduser().absolute() / f"{self.name}-{digest}"
        if config.resume or not folder.exists():
            return folder
        return next(path for i in range(2, 10**6) if not (path := folder.with_name(f"{folder.name}-{i}")).exists())

    @property
    def _prompt_template(self) -> str:
        return self.config.prompt_template

    def _write_inputs(self, folder: Path, problems: Sequence[Problem], validation: Sequence[Problem]) -> InputFiles:
        template = self._prompt_template
        val = None
        if validation:
            val = write_rows(validation, folder / "validation.parquet", template=template, split="validation")
        return InputFiles(
            train=write_rows(problems, folder / "train.parquet", template=template, split="train"),
            validation=val,
            reward=write_reward(self.reward_fn, folder, timeout_s=self.config.reward_timeout_s),
            problems=len(problems),
            reward_range=tuple(getattr(self.reward, "reward_range", (0.0, 1.0))),  # type: ignore[arg-type]
        )

    def _result(self, folder: Path) -> TrainResult:
        saved = step_folders(folder)
        return TrainResult(
            checkpoint=model_of(saved[max(saved)]),
            history=history.history(folder),
            best_step=history.best_step(folder),
            run_folder=folder,
            alarms=history.alarms(folder),
        )

    # One iteration by hand, in this process.

    @property
    def sampler(self) -> Sampler:
        """The policy as it is now, in this process."""
        if self._sampler is None:
            self._sampler = Sampler.load(self._current, self.config)
        return self._sampler

    @property
    def _current(self) -> str:
        return str(self._start if self.result is None else self.result.checkpoint)

    @property
    def model(self) -> Any:
        """The policy as it is now, a model of transformers; loaded when first asked for."""
        return self.sampler.model

    @property
    def tokenizer(self) -> Any:
        """The policy's."""
        return self.sampler.tokenizer

    @property
    def temperature(self) -> float:
        """Of sampling, at this iteration."""
        return self.config.temperature(self.num_iterations).at(self.iteration)

    @property
    def entropy_coef(self) -> float:
        """Of the bonus for entropy, at this iteration."""
        return self.config.entropy(self.num_iterations).at(self.iteration)

    def update_hyperparameters(self) -> dict[str, float]:
        """Goes on to the next iteration; its `temperature` and `entropy_coef`."""
        self.iteration += 1
        return {"temperature": self.temperature, "entropy_coef": self.entropy_coef}

    def collect_trajectories(self, problems: Problems) -> list[dict[str, Any]]:
        """`group_size` answers of the policy to each problem, drawn at this iteration's temperature, and scored.

        Each is a mapping: `problem`, `response` (texts), `tokens` (ids), `log_probs` (of each token, behind problem and
        earlier tokens, at the temperature of sampling), `values` (0: the critic lives in the run), `reward` (None where
        it failed), `advantages`, `returns` (of each token), `problem_id`, `temperature`.
        """
        known = as_problems(problems)
        drawn = self.sampler.draw(known, self._prompt_template, self.temperature, seed=self.iteration)
        self.sampler.score(drawn, known, self.reward, timeout_s=self.config.reward_timeout_s)
        return self.compute_advantages(drawn)

    def compute_advantages(self, trajectories: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The trajectories with `advantages` and `returns`, by the estimator of the training itself.

        A trajectory whose reward failed has advantage 0 and no part in its group's statistics.
        """
        return advantages_of(trajectories, self.config)

    def save_checkpoint(self, path: str | Path) -> Path:
        """Writes the policy as a folder that transformers loads, with the iteration beside it."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        state = {"iteration": self.iteration, "num_iterations": self.num_iterations}
        (folder / "pure_rl.json").write_text(json.dumps(state))
        return folder

    def load_checkpoint(self, path: str | Path) -> None:
        """Makes a folder of `save_checkpoint`, or a checkpoint `global_step_N`, what training and sampling start from.

        Raises:
            ConfigError: it holds no whole policy.
            FileNotFoundError: it is not there.
        """
        folder = Path(path).expanduser().absolute()
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not there")
        self._start = folder if (folder / "config.json").exists() else model_of(folder)
        self.result = self._sampler = None
        state = folder / "pure_rl.json"
        if state.exists():
            told = json.loads(state.read_text())
            self.iteration, self.num_iterations = told["iteration"], told["num_iterations"]
