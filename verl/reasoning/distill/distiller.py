"""`ReasoningDistiller`: a teacher's verified reasoning becomes a student's.

One decision: every step keeps what it has made in `output_dir` (traces, texts, models, numbers), so that the same calls
with the same settings go on where they were stopped, and train nothing twice.

    >>> distiller = ReasoningDistiller(DistillationConfig(teacher_model_name="./big", student_model_name="./small"))
    >>> distiller.distill_with_reasoning_preservation(problems)["model"]
    >>> distiller.evaluate_distillation(test_problems)["retention"]["retention"]
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from verl.classmate.errors import ConfigError
from verl.reasoning.backends import GenBackend, SamplingParams
from verl.reasoning.distill import on_policy, preservation
from verl.reasoning.distill.config import DistillationConfig
from verl.reasoning.distill.defaults import Heuristic, Opener, default_heuristic, default_reward, open_backend
from verl.reasoning.distill.evaluation import Behaviours, preservation_report
from verl.reasoning.distill.likelihood import compare
from verl.reasoning.distill.on_traces import Trace, learn
from verl.reasoning.distill.own_texts import own_rows
from verl.reasoning.distill.sampling import pass_rate, sample
from verl.reasoning.distill.traces import verified
from verl.reasoning.distill.training import Hooks
from verl.reasoning.records import Problem, Solution, as_problems
from verl.reasoning.rewards import as_reward
from verl.reasoning.sft.fine_tune import fine_tune, told_of
from verl.trainer.run.state import write_atomically

Given = Sequence[Problem | str | Mapping[str, Any]]

METRICS = ("teacher_perplexity", "student_perplexity", "kl_divergence", "reasoning_score_correlation")


class ReasoningDistiller:
    """One teacher and one student."""

    def __init__(
        self,
        config: DistillationConfig,
        reward_fn: Callable[..., Any] | None = None,
        *,
        teacher: GenBackend | None = None,
        open_model: Opener | None = None,
        heuristic: Heuristic | None = None,
        behaviours: Behaviours | None = None,
    ) -> None:
        """Loads nothing.

        Args:
            config: of everything.
            reward_fn: of (problem, solution), see `as_reward`; None: compares answers.
            teacher: who writes the traces; None: the config's, on the embedded engine.
            open_model: makes a backend of a path or a model and its tokenizer; None: the embedded engine.
            heuristic: how hard a problem looks, for `difficulty="heuristic"` and for ties; None: the pipeline's own.
            behaviours: counts behaviours in texts, for `evaluate_distillation`; None: they are not compared.
        """
        self.config, self.folder = config, Path(config.output_dir)
        self.reward = default_reward() if reward_fn is None else as_reward(reward_fn)
        self._open: Opener = open_model or partial(open_backend, device=config.device)
        self._teacher, self._heuristic, self._behaviours = teacher, heuristic, behaviours
        self.distillation_metrics: dict[str, float | None] = dict.fromkeys(METRICS)
        self.notes: list[str] = []
        self.teacher_report: dict[str, Any] = {}
        self.model_path: Path | None = None

    def generate_teacher_solutions(self, problems: Given) -> list[Solution]:
        """The teacher's traces that are learnt from: whole ones which the reward accepts (`teacher_report` counts).

        Raises:
            ValueError: there is none.
        """
        config, asked = self.config, as_problems(problems)
        sampling = SamplingParams(
            temperature=config.teacher_temperature,
            top_p=config.teacher_top_p,
            max_tokens=config.max_length,
            seed=config.seed,
        )
        samples = self._samples(self._teacher or config.teacher, asked, config.n_teacher, sampling, "traces", "teacher")
        kept, self.teacher_report = verified(
            asked,
            samples,
            verify=config.verify,
            min_score=config.min_score,
            max_per_problem=config.max_per_problem,
        )
        if not kept:
            counts = {
                name: count for name, count in self.teacher_report.items() if count and name != "unsolved_problems"
            }
            raise ValueError(
                f"no trace of {config.teacher} can be learnt from ({counts}); give others, or verify=False"
            )
        return kept

    def distill_with_reasoning_preservation(
        self, problems: Given, validation_problems: Given | None = None
    ) -> dict[str, Any]:
        """Trains the student; `distillation_metrics` are then those of held-out problems.

        Args:
            problems: to learn from.
            validation_problems: held out; None: a share of the problems is.

        Returns:
            `model` (a folder), `mode`, `notes`, `teacher` (what became of its texts), `metrics`, and what training
            tells: `steps`, `rows`, `tokens`, `history` or `losses`.

        Raises:
            ConfigError: the mode is not possible with these models or on this machine.
            ValueError: there are no traces, or a problem is in both sets.
        """
        train, held_out = self._split(problems, validation_problems)
        mode = self.config.mode
        if mode == "gold":
            self.notes.append(
                "mode='gold': the student has a tokenizer of its own, so it learns the traces' texts (as with 'seq'), "
                "not the teacher's probabilities"
            )
        folder = self.folder / "student"
        if mode == "on_policy":
            told = on_policy.distil(self.config, train, folder)
        elif mode == "logit":
            traces = self.traces(train)
            told = learn(
                self.config, traces, folder, stages=1, hooks=self._plain_hooks, revision=self.teacher_revision()
            )
        else:
            traces = self.traces(train)
            pairs = [(one.problem, one.text) for one in traces]
            told = {"model": str(fine_tune(self.config.student, pairs, folder, self.config.fine_tuning()))}
            told |= {key: value for key, value in told_of(folder).items() if key != "made_from"}
        self.model_path = Path(told["model"])
        self.distillation_metrics = self._measure(held_out)
        told |= {"mode": mode, "notes": list(self.notes), "teacher": self.teacher_report}
        return self._kept("distillation.json", {**told, "metrics": self.distillation_metrics})

    def evaluate_distillation(self, test_problems: Given) -> dict[str, Any]:
        """Teacher, student and the student before, on problems that none was trained on (`evaluation.json`).

        Returns:
            `preservation_report`, with `kl` on traces of the teacher and on texts of the student, and `perplexity`.

        Raises:
            ValueError: nothing was distilled yet.
        """
        config, asked, student = self.config, as_problems(test_problems), self._student()
        models: dict[str, Any] = {
            "teacher": self._teacher or config.teacher,
            "before": config.student,
            "student": str(student),
        }
        samples = {name: self._evaluated(model, asked, name) for name, model in models.items()}
        report = preservation_report(
            asked, samples, min_score=config.min_score, seed=config.seed, behaviours=self._behaviours
        )
        found = {}
        for name in ("teacher", "student"):
            pairs = [
                (problem.problem, one.text)
                for problem, some in zip(asked, samples[name], strict=True)
                for one in some[:1]
                if one.text.strip()
            ]
            found[f"{name}_texts"] = compare(config.teacher, str(student), pairs, device=config.device)
        report["kl"] = {name: told["kl_divergence"] for name, told in found.items()}
        report["perplexity"] = found
        return self._kept("evaluation.json", report)

    def traces(self, problems: Sequence[Problem]) -> list[Trace]:
        """`generate_teacher_solutions` with the problems' texts."""
        texts = {one.id: one.problem for one in problems}
        return [
            Trace(problem_id=one.problem_id, problem=texts[one.problem_id], text=one.text)
            for one in self.generate_teacher_solutions(problems)
        ]

    def teacher_revision(self) -> str:
        """Which weights the teacher has."""
        if self._teacher is not None:
            return self._teacher.revision
        backend = self._open(self.config.teacher, None)
        try:
            return backend.revision
        finally:
            backend.close()

    def difficulty(self, model: Any, tokenizer: Any, problems: Sequence[Problem], name: str) -> dict[str, float]:
        """By id, how hard each problem is for a model: 1 - pass@1, or its text's look; texts break ties.

        A problem whose texts could not be scored is as hard as the mean of the others.
        """
        look = self._heuristic
        if self.config.difficulty == "heuristic":
            look = look or default_heuristic()
            return {one.id: float(look(one)) for one in problems}
        config = self.config
        sampling = SamplingParams(temperature=1.0, top_p=1.0, max_tokens=config.max_length, seed=config.seed)
        samples = self._samples(model, problems, config.difficulty_samples, sampling, name, name, tokenizer)
        rates = [pass_rate(some, config.min_score) for some in samples]
        known = [rate for rate in rates if rate is not None]
        middle = sum(known) / len(known) if known else 0.5
        hard = {one.id: 1.0 - (middle if rate is None else rate) for one, rate in zip(problems, rates, strict=True)}
        if look is not None:
            looks = {one.id: float(look(one)) for one in problems}
            widest = max(map(abs, looks.values()), default=0.0) or 1.0
            # Smaller than the smallest distance of two pass rates.
            small = 0.4 / config.difficulty_samples / widest
            hard = {key: value + small * looks[key] for key, value in hard.items()}
        return hard

    def _plain_hooks(self, tokenizer: Any, traces: Sequence[Trace]) -> Hooks:
        """One stage: nothing is measured on the way."""
        own = own_rows(self.config, self._open, tokenizer, [one.problem for one in traces])
        return Hooks(difficulty=lambda model, ids: dict.fromkeys(ids, 0.0), own_rows=own)

    def _split(self, problems: Given, validation: Given | None) -> tuple[list[Problem], list[Problem]]:
        given = as_problems(problems)
        if validation is None:
            return held_out(given, self.config.held_out_share)
        others = as_problems(validation)
        both = {one.id for one in given} & {one.id for one in others}
        if both:
            raise ValueError(
                f"{len(both)} problems are both trained on and held out, {min(both)!r} among them; take out"
            )
        return given, others

    def _measure(self, problems: Sequence[Problem]) -> dict[str, float | None]:
        """The four numbers of held-out problems; None where one is not defined."""
        if not problems:
            return dict.fromkeys(METRICS)
        config, student = self.config, self._student()
        models = {"teacher": self._teacher or config.teacher, "student": str(student)}
        samples = {name: self._evaluated(model, problems, f"held_out_{name}") for name, model in models.items()}
        traces, _ = verified(
            problems, samples["teacher"], verify=config.verify, min_score=config.min_score, max_per_problem=1
        )
        texts = {one.id: one.problem for one in problems}
        pairs = [(texts[one.problem_id], one.text) for one in traces]
        scores = [(_mean(one), _mean(other)) for one, other in zip(samples["teacher"], samples["student"], strict=True)]
        both = [(one, other) for one, other in scores if one is not None and other is not None]
        r = preservation.correlation(*map(list, zip(*both, strict=True))) if both else None
        return {**compare(config.teacher, str(student), pairs, device=config.device), METRICS[3]: r}

    def _evaluated(
        self, model: Any, problems: Sequence[Problem], name: str, tokenizer: Any = None
    ) -> list[list[Solution]]:
        config = self.config
        sampling = SamplingParams(
            temperature=config.eval_temperature, top_p=0.95, max_tokens=config.max_length, seed=config.seed + 1
        )
        return self._samples(model, problems, config.eval_samples, sampling, name, name, tokenizer)

    def _samples(
        self,
        model: Any,
        problems: Sequence[Problem],
        n: int,
        sampling: SamplingParams,
        name: str,
        stage: str,
        tokenizer: Any = None,
    ) -> list[list[Solution]]:
        """Texts of a model, path or backend; each set has a file of its own."""
        is_backend = hasattr(model, "continue_from")
        backend = model if is_backend else self._open(model, tokenizer)
        said = json.dumps([backend.revision, n, dataclasses.asdict(sampling), [one.id for one in problems]])
        journal = self.folder / "texts" / f"{name}_{blake2b(said.encode(), digest_size=6).hexdigest()}.jsonl"
        try:
            return sample(backend, problems, n=n, sampling=sampling, reward=self.reward, stage=stage, journal=journal)
        finally:
            if not is_backend:
                backend.close()

    def _student(self) -> Path:
        if self.model_path is None:
            raise ValueError("nothing was distilled yet; call distill_with_reasoning_preservation first")
        return self.model_path

    def _kept(self, name: str, told: dict[str, Any]) -> dict[str, Any]:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / name, json.dumps(told, indent=2, default=str))
        return told


def held_out(problems: Sequence[Problem], share: float) -> tuple[list[Problem], list[Problem]]:
    """Training problems and held-out ones; which those are follows from their ids alone.

    Raises:
        ConfigError: there are too few problems for both.
    """
    if share == 0:
        return list(problems), []
    ordered = sorted(problems, key=lambda one: blake2b(f"held out/{one.id}".encode()).digest())
    out = {one.id for one in ordered[: max(1, round(share * len(ordered)))]}
    kept = [one for one in problems if one.id not in out]
    if not kept:
        raise ConfigError(f"{len(problems)} problems are too few to hold one out; give more, or held_out_share=0")
    return kept, [one for one in problems if one.id in out]


def _mean(solutions: Sequence[Solution]) -> float | None:
    scores = [one.score for one in solutions if one.score is not None]
    return sum(scores) / len(scores) if scores else None
