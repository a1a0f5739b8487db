"""`PureRLTrainer`: stage 1, reinforcement learning with the reward alone (DeepSeek-R1-Zero, arXiv:2501.12948).

One decision: it trains nothing itself. Problems become rows, options become keys, the reward becomes a file, and the
trainer of everything else here is started as its own command: so its checks, its run folder, its resuming after a kill
and its failures are those that its users know.

    >>> trainer = PureRLTrainer(PureRLConfig(model_name="models/base"), reward_fn)
    >>> trainer.train(problems, num_iterations=100).checkpoint
    'rl_output/run/global_step_100/actor/huggingface'
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import cloudpickle

from verl.classmate.errors import ConfigError
from verl.data_preprocessing.common import make_row, write_parquet
from verl.reasoning.backend_hf import HFBackend
from verl.reasoning.backends import SamplingParams
from verl.reasoning.reading import read_solution
from verl.reasoning.records import Problem, as_problems
from verl.reasoning.rewards import Reward, as_reward
from verl.reasoning.rl.config import PureRLConfig
from verl.reasoning.rl.overrides import REWARD, REWARD_NAME, RUN, TRAIN, VAL, overrides
from verl.reasoning.scoring import score_solutions, to_verl_compute_score
from verl.stepwise.schedules import Schedule
from verl.trainer.run.checkpoints import step_folders
from verl.trainer.run.model_folders import model_of
from verl.trainer.run.state import is_finished, write_atomically

SOURCE = "reasoning"
"""`data_source` of problems without one; the run's own reward scores them."""
ENTRY_POINT = "verl.trainer.qwen_main_ppo"
REQUEST = "request.json"
"""What the run in the folder was asked for."""

Given = Sequence[Problem | str | Mapping[str, Any]]

_REWARD_FILE = '''"""The reward of this run, as the process that started it had it."""

import sys
from pathlib import Path

import cloudpickle

# Behind all others, so that a file beside the user's script hides no library.
sys.path += [one for one in {paths} if one not in sys.path]
{name} = cloudpickle.loads(Path(__file__).with_suffix(".pkl").read_bytes())
{name}.reward_range = {bounds}
'''


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """What a training left."""

    checkpoint: str
    """Folder of the model that is taken."""
    history: list[dict[str, float]] = field(default_factory=list)
    """Every `log_interval` steps: `step`, `reward`, `policy_loss`, `entropy`, `kl_div`, `clip_fraction`,
    `temperature` and whatever else was measured; with a critic `value_loss`."""
    best_step: int = 0
    """Which checkpoint it is: the best on problems that were set aside, or the last."""


_NUMBERS = {
    "reward": "critic/rewards/mean",
    "policy_loss": "actor/pg_loss",
    "value_loss": "critic/vf_loss",
    "entropy": "actor/entropy",
    "kl_div": "actor/kl_loss",
    "clip_fraction": "actor/pg_clipfrac",
    "total_loss": "actor/loss",
    "temperature": "reasoning/temperature",
    "entropy_coef": "reasoning/entropy_coeff",
    "response_length": "response_length/mean",
    "truncated": "response_length/clip_ratio",
}
"""Name in `history` -> metric of the run."""


class PureRLTrainer:
    """Trains a model with a reward, and can be asked what it would draw and learn."""

    stage = "pure_rl"

    def __init__(self, config: PureRLConfig, reward_fn: Callable[..., Any]) -> None:
        """Loads nothing.

        Args:
            config: all options.
            reward_fn: of (problem, solution), see `as_reward`; a function of a script works, too.
        """
        self.config = config
        self.reward: Reward = as_reward(reward_fn)
        self.step = 0
        """Steps taken: by `train`, or counted by `update_hyperparameters`."""
        self.checkpoint = config.model_name
        """The model as it is now."""
        self._loaded: tuple[str, Any, Any] | None = None

    def train(self, problems: Given, num_iterations: int = 1000) -> TrainResult:
        """Trains for some steps, or goes on with a run that was killed; its bar is the trainer's own.

        Raises:
            ConfigError: the folder holds a training of something else.
            ValueError: there are fewer problems than a step has.
            RuntimeError: the run failed; the message names its log.
        """
        folder = Path(self.config.output_dir).resolve()
        asked = as_problems(problems)
        held_out = self.config.validation_problems
        if len(asked) - held_out < self.config.batch_size:
            raise ValueError(
                f"{len(asked)} problems, {held_out} of them set aside, are fewer than a step's {self.config.batch_size}"
                "; give more, or write a smaller batch_size"
            )
        self._prepare(folder, asked, num_iterations)
        run = folder / RUN
        if not is_finished(run):
            command = [sys.executable, "-m", ENTRY_POINT, *overrides(self.config, folder, steps=num_iterations)]
            code = subprocess.run(command).returncode
            if code in (130, -2, 143, -15):
                raise KeyboardInterrupt
            if code == 2:
                raise ConfigError("the trainer refused the run; the line above says why, and what to write instead")
            if code or not is_finished(run):
                raise RuntimeError(f"the training in {run} ended with exit code {code}; see {run / 'logs/driver.log'}")
        return self._result(run, num_iterations)

    def collect_trajectories(self, problems: Given) -> list[dict[str, Any]]:
        """`group_size` solutions of each problem by the model as it is now, scored, in this process.

        Keys: problem, response, tokens, log_probs, values (None: there is no critic here), reward (None: the reward
        failed), advantages, returns.
        """
        asked = as_problems(problems)
        sampling = SamplingParams(
            temperature=self.temperature,
            top_p=1.0,
            max_tokens=self.config.max_length - self.config.prompt_length,
            seed=self.config.seed + self.step,
        )
        with HFBackend(self.checkpoint, device=self.config.device) as backend:
            texts = [self._prompt(one) for one in asked]
            drawn = backend.generate(texts, n=self.config.group_size, sampling=sampling)
        pairs = [(p, one) for p, group in zip(asked, drawn, strict=True) for one in group if one.ok]
        solutions = [read_solution(c.text, problem_id=p.id, n_tokens=len(c.token_ids)) for p, c in pairs]
        scored = score_solutions(self.reward, asked, solutions).solutions
        return [
            {
                "problem": problem.problem,
                "response": completion.text,
                "tokens": list(completion.token_ids),
                "log_probs": list(completion.log_probs),
                "values": None,
                "reward": solution.score,
                "advantages": None,
                "returns": None,
            }
            for (problem, completion), solution in zip(pairs, scored, strict=True)
        ]

    def compute_advantages(self, trajectories: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The trajectories with `advantages` and `returns`, a number each for all tokens; those without a reward keep
        None and count for nobody.

        GRPO: (r - mean) / (std + 1e-6) of the group; Dr. GRPO without the std; RLOO: r less the mean of the others.

        Raises:
            ConfigError: algorithm=gae, whose advantages need the critic of a run.
        """
        if self.config.algorithm == "gae":
            raise ConfigError(
                "algorithm=gae computes advantages from its critic, in train; write grpo, dr_grpo or rloo"
            )
        groups: dict[str, list[float]] = {}
        for one in trajectories:
            if one["reward"] is not None:
                groups.setdefault(one["problem"], []).append(one["reward"])
        found = []
        for one in trajectories:
            reward = one["reward"]
            value = None if reward is None else self._advantage(reward, groups[one["problem"]])
            found.append({**one, "advantages": value, "returns": reward})
        return found

    def _advantage(self, reward: float, group: Sequence[float]) -> float:
        if len(group) < 2:
            return 0.0
        gain = reward - statistics.fmean(group)
        if self.config.algorithm == "rloo":
            return gain * len(group) / (len(group) - 1)
        return gain / (statistics.stdev(group) + 1e-6) if self.config.algorithm == "grpo" else gain

    @property
    def temperature(self) -> float:
        """With which the next step draws."""
        config = self.config
        return self._at(config.temperature_start, config.temperature_end, config.temperature_decay)

    @property
    def entropy_coef(self) -> float:
        """Of the next step's loss."""
        config = self.config
        return self._at(config.entropy_coef_start, config.entropy_coef_end, config.entropy_coef_decay)

    def update_hyperparameters(self) -> dict[str, float]:
        """Counts a step; the temperature and the coefficient of entropy of the next one."""
        self.step += 1
        return {"temperature": self.temperature, "entropy_coef": self.entropy_coef}

    def save_checkpoint(self, path: str | Path) -> None:
        """Copies the model as it is now, with its step, into a folder."""
        folder = Path(path)
        if Path(self.checkpoint).is_dir():
            shutil.copytree(self.checkpoint, folder, dirs_exist_ok=True)
        else:
            model, tokenizer = self._load()
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        write_atomically(folder / "trainer_step.json", json.dumps({"step": self.step}))

    def load_checkpoint(self, path: str | Path) -> None:
        """Takes a model, and its step where the folder tells it.

        Raises:
            FileNotFoundError: there is no model.
        """
        folder = Path(path)
        if not (folder / "config.json").is_file():
            raise FileNotFoundError(f"{folder} holds no model; name a folder of save_checkpoint")
        told = folder / "trainer_step.json"
        self.step = json.loads(told.read_text())["step"] if told.is_file() else 0
        self.checkpoint = str(folder)

    @property
    def model(self) -> Any:
        """The model as it is now, of transformers."""
        return self._load()[0]

    def _load(self) -> tuple[Any, Any]:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        if self._loaded is None or self._loaded[0] != self.checkpoint:
            tokenizer: Any = AutoTokenizer.from_pretrained(self.checkpoint)
            self._loaded = self.checkpoint, AutoModelForCausalLM.from_pretrained(self.checkpoint).eval(), tokenizer
        return self._loaded[1:]

    def _at(self, start: float, end: float, decay: float) -> float:
        kind = "constant" if start == end else self.config.schedule_kind
        return Schedule(kind=kind, start=start, end=end, decay=decay, steps=max(1, self.step)).at(self.step)

    def _training_reward(self) -> Reward:
        """What the run is rewarded with."""
        return self.reward

    def _prompt(self, problem: Problem) -> str:
        template = self.config.prompt_template
        return problem.problem if template is None else template.replace("{problem}", problem.problem)

    def _rows(self, problems: Sequence[Problem], split: str) -> list[dict[str, Any]]:
        return [
            make_row(
                data_source=one.source or SOURCE,
                question=self._prompt(one),
                ground_truth=one.answer or "",
                split=split,
                index=index,
                extra_info={"problem": one.problem, "id": one.id, "level": str(one.level or "")},
            )
            for index, one in enumerate(problems)
        ]

    def _prepare(self, folder: Path, problems: Sequence[Problem], steps: int) -> None:
        """Writes rows, reward and request; a folder with another request is refused.

        Raises:
            ConfigError: it holds another training.
        """
        held_out = self.config.validation_problems
        train, val = list(problems[held_out:]), list(problems[:held_out]) or list(problems[:1])
        pickled = cloudpickle.dumps(to_verl_compute_score(self._training_reward()))
        config = {key: value for key, value in asdict(self.config).items() if key not in ("output_dir", "use_wandb")}
        rows = json.dumps([asdict(one) for one in problems], default=str)
        request = {"config": config, "steps": steps, "problems": blake2b(rows.encode(), digest_size=16).hexdigest()}
        request = json.loads(json.dumps(request))
        file = folder / REQUEST
        before = json.loads(file.read_text()) if file.is_file() else None
        if before is not None and before != request:
            changed = sorted(
                [key for key in ("steps", "problems") if before.get(key) != request[key]]
                + [key for key in config if before.get("config", {}).get(key) != request["config"][key]]
            )
            raise ConfigError(
                f"output_dir={self.config.output_dir} holds a training with other {', '.join(changed)}; name another "
                "folder, or remove this one"
            )
        if before is not None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        write_parquet(self._rows(train, "train"), folder / TRAIN)
        write_parquet(self._rows(val, "val"), folder / VAL)
        (folder / REWARD).with_suffix(".pkl").write_bytes(pickled)
        bounds = getattr(self._training_reward(), "reward_range", (0.0, 1.0))
        write_atomically(
            folder / REWARD, _REWARD_FILE.format(name=REWARD_NAME, bounds=tuple(bounds), paths=_script_folders())
        )
        write_atomically(file, json.dumps(request, indent=1) + "\n")

    def _result(self, run: Path, steps: int) -> TrainResult:
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        best = self._best_step(run, lines)
        self.step, self.checkpoint = steps, str(model_of(run / f"global_step_{best}"))
        history = [
            {"step": line["step"], **{name: line[key] for name, key in _NUMBERS.items() if key in line}}
            for line in lines
            if line["step"] % self.config.log_interval == 0 or line["step"] in (1, steps)
        ]
        return TrainResult(checkpoint=self.checkpoint, history=history, best_step=best)

    def _best_step(self, run: Path, lines: Sequence[Mapping[str, Any]]) -> int:
        """The checkpoint with the best validation, or the last."""
        there = list(step_folders(run))
        if not self.config.validation_problems:
            return there[-1]
        scores = {
            line["step"]: [
                value for key, value in line.items() if key.startswith("val-core/") and "/reward/mean" in key
            ]
            for line in lines
        }
        known = {step: statistics.fmean(scores[step]) for step in there if scores.get(step)}
        return max(known, key=lambda step: (known[step], -step)) if known else there[-1]


def _script_folders() -> list[str]:
    """Where the modules lie that the user's functions are pickled by the name of; those of libraries are left out."""
    found = [os.getcwd(), *(os.path.abspath(one) for one in sys.path if one)]
    return [one for one in dict.fromkeys(found) if os.path.isdir(one) and not one.startswith(sys.base_prefix)]
