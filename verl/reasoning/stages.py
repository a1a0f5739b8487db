"""The stages of the pipeline: each is a function from what earlier ones left to what this one leaves in its folder.

One decision: a stage reads files and writes files, and keeps nothing in memory for the next; so any of them can be
killed, run again or run alone. The test problems are no argument of any of them.

    >>> made = rejection(folder, context, model="models/policy", problems=problems)
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl.reasoning.acceptance import Accepts
from verl.reasoning.accepted_set import ACCEPTED, PROBLEMS, REJECTED, SPARE
from verl.reasoning.backend_cache import CachedBackend
from verl.reasoning.backend_engines import VLLMBackend
from verl.reasoning.backend_hf import HFBackend
from verl.reasoning.backends import GenBackend
from verl.reasoning.distill.distiller import ReasoningDistiller
from verl.reasoning.distill.progressive import ProgressiveDistiller
from verl.reasoning.evaluation import EvalReport, evaluate
from verl.reasoning.pipeline_config import ReasoningPipelineConfig
from verl.reasoning.prm.generator import PRMDataGenerator
from verl.reasoning.prm.rows import split_by_problem
from verl.reasoning.prm.step_judge import FILE as JUDGE
from verl.reasoning.prm.step_judge import load_judge, make_judge
from verl.reasoning.prm.trainer import PRMTrainer
from verl.reasoning.reader_approval import ReaderApproval
from verl.reasoning.reading import parted
from verl.reasoning.records import Problem, Solution, read_jsonl, write_jsonl
from verl.reasoning.rejection import RejectionSampler
from verl.reasoning.reranking import refused, reranked
from verl.reasoning.rewards import Reward
from verl.reasoning.rl.cot import ChainOfThoughtTrainer
from verl.reasoning.rl.running import lines
from verl.reasoning.rl.trainer import PureRLTrainer
from verl.reasoning.sft.fine_tune import fine_tune, told_of
from verl.reasoning.stage_runs import MODEL, Made, place_model
from verl.stepwise.steps import split_steps
from verl.trainer.run.state import write_atomically

LABELS = "labelled.jsonl"
REPORT = "report.json"


@dataclass(frozen=True, kw_only=True)
class Context:
    """What all stages of a pipeline share."""

    config: ReasoningPipelineConfig
    """The whole."""
    reward: Reward
    """Of training; may change with the step."""
    correctness: Reward
    """Says what is right, the same at all times: accepts solutions, labels steps, evaluates."""
    cache: Path | None
    """File of all samples; None: nothing is kept."""

    @contextmanager
    def writer(self, model: str) -> Iterator[GenBackend]:
        """A model that writes, on the configured engine; ended afterwards."""
        with ExitStack() as stack:
            backend = self._engine(model)
            stack.callback(backend.close)
            if self.cache is not None:
                backend = CachedBackend(backend, self.cache)
                stack.callback(backend.close)
            yield backend

    def _engine(self, model: str) -> GenBackend:
        kind = self.config.backend
        if kind == "auto":
            from verl.utils.device import get_device_name

            kind = "vllm" if self.config.device != "cpu" and get_device_name() == "cuda" else "hf"
        if kind == "vllm":
            return VLLMBackend(model)
        return HFBackend(model, device=self.config.device)


def pure_rl(folder: Path, context: Context, *, model: str, problems: Sequence[Problem]) -> Made:
    """Stage 1: reinforcement learning with the reward alone."""
    config = context.config
    trainer = PureRLTrainer(config.rl_config(model, folder / "run"), context.reward)
    result = trainer.train(list(problems), num_iterations=config.pure_rl_iterations)
    return _trained(folder, result, config.pure_rl_iterations, len(problems))


def cot(folder: Path, context: Context, *, model: str, problems: Sequence[Problem]) -> Made:
    """Stage 2: the same with a reward of the chain of thought, whose answer part is the pipeline's reward."""
    config = context.config
    trainer = ChainOfThoughtTrainer(config.cot_config(model, folder / "run"), context.correctness)
    result = trainer.train_with_cot_rewards(list(problems), num_iterations=config.cot_iterations)
    write_atomically(folder / "emergence.json", json.dumps(dict(trainer.cot_emergence_metrics), indent=1) + "\n")
    made = _trained(folder, result, config.cot_iterations, len(problems))
    return dataclasses.replace(made, files=(*made.files, "emergence.json"))


def _trained(folder: Path, result: Any, steps: int, problems: int) -> Made:
    place_model(result.checkpoint, folder)
    write_atomically(folder / "history.json", json.dumps(result.history, indent=1, default=str) + "\n")
    tokens = sum(line.get("perf/total_num_tokens") or 0 for line in lines(result.run_folder))
    return Made(files=(MODEL, "history.json"), counts={"steps": steps, "problems": problems, "tokens": tokens})


def rejection(folder: Path, context: Context, *, model: str, problems: Sequence[Problem]) -> Made:
    """Stage 3, first half: samples, and those that are accepted, by readers too where the config names some."""
    asked = list(problems)[: context.config.sampled_problems]
    with context.writer(model) as writer, ExitStack() as stack:
        tests: list[Accepts] = []
        for number, reader in enumerate(context.config.readers):
            backend = stack.enter_context(context.writer(reader))
            tests.append(ReaderApproval(backend, name=f"reader_{number}"))
        sampler = RejectionSampler(writer, None, context.correctness, context.config.rejection_config(), tests=tests)
        found = sampler.accepted_set(asked)
        found.write(folder)
        write_atomically(folder / "sampling_report.txt", sampler.get_sampling_report() + "\n")
    names = (PROBLEMS, ACCEPTED, SPARE, REJECTED, "preferences.jsonl", "counts.json", "sampling_report.txt")
    return Made(files=names, counts=found.counts)


def rejection_fine_tuning(folder: Path, context: Context, *, model: str, samples: Path) -> Made:
    """Stage 3, second half: fine-tunes the base model on what was accepted.

    Raises:
        ValueError: nothing was accepted.
    """
    accepted = read_jsonl(samples / ACCEPTED, Solution)
    return _fine_tuned(folder, context, model=model, samples=samples, accepted=accepted)


def reranked_fine_tuning(folder: Path, context: Context, *, model: str, samples: Path, judge: Path) -> Made:
    """The same once more, on as many solutions of each problem, chosen by the judge of steps among all right ones."""
    use = context.config.use_prm_for
    accepted = read_jsonl(samples / ACCEPTED, Solution)
    problems = {one.id: one.problem for one in read_jsonl(samples / PROBLEMS, Problem)}
    candidates = accepted + read_jsonl(samples / SPARE, Solution)
    scores = load_judge(judge, device=context.config.device).score_steps(
        [problems[one.problem_id] for one in candidates], [steps_of(one.thinking or one.text) for one in candidates]
    )
    places = reranked(
        candidates,
        scores,
        wanted=Counter(one.problem_id for one in accepted),
        rank="rank" in use,
        refuse="filter" in use,
    )
    chosen = [candidates[i] for i in places]
    made = _fine_tuned(folder, context, model=model, samples=samples, accepted=chosen)
    counts = {
        "candidates": len(candidates),
        "refused_by_judge": sum(refused(one) for one in scores),
        "taken_though_refused": sum(refused(scores[i]) for i in places),
    }
    return dataclasses.replace(made, counts={**made.counts, **counts})


def steps_of(text: str) -> list[str]:
    """The steps of a thought, as everywhere in the pipeline."""
    return [step.text for step in split_steps(text)]


def solutions_to_label(right: Sequence[Solution], wrong: Sequence[Solution], most: int) -> list[Solution]:
    """Solutions whose steps are worth completions; wrong ones are half of them, where there are so many.

    Of a problem that was never solved completions fail from the right steps too, so its wrong solutions are left out;
    of the others those come first that were solved most often.
    """
    failures = Counter(one.problem_id for one in wrong)
    solved = {one.problem_id for one in right}
    hopeful = sorted((one for one in wrong if one.problem_id in solved), key=lambda one: failures[one.problem_id])
    right, wrong = _spread(right), _spread(hopeful)
    chosen = right[: max(most // 2, most - len(wrong))]
    return chosen + wrong[: most - len(chosen)]


def _spread(solutions: Sequence[Solution]) -> list[Solution]:
    """The first of each problem, then the second of each, and so on: a part of them is of as many as can be."""
    seen: Counter[str] = Counter()
    turns = []
    for one in solutions:
        turns.append(seen[one.problem_id])
        seen[one.problem_id] += 1
    return [solutions[i] for i in sorted(range(len(solutions)), key=turns.__getitem__)]


def _fine_tuned(folder: Path, context: Context, *, model: str, samples: Path, accepted: Sequence[Solution]) -> Made:
    texts = {one.id: one.problem for one in read_jsonl(samples / PROBLEMS, Problem)}
    rows = [(texts[one.problem_id], one.text) for one in accepted]
    if not rows:
        raise ValueError(
            "rejection sampling accepted no solution to fine-tune on; more samples (rejection_samples), a lower "
            "rejection.min_score_threshold or easier problems give some"
        )
    trained = fine_tune(model, rows, folder / "training", context.config.fine_tuning())
    place_model(trained, folder)
    told = told_of(trained)
    names: tuple[str, ...] = ("rows", "left_out", "steps", "tokens")
    return Made(files=(MODEL,), counts={key: told[key] for key in names if key in told})


def process_rewards(folder: Path, context: Context, *, model: str, samples: Path, reader: str) -> Made:
    """Stage 4: labels the steps of right and wrong solutions, and trains the model that judges steps.

    The judge that later stages ask is that model, the likelihood under `reader`, or both.
    """
    config = context.config.prm_config(model, folder / "training")
    problems = {one.id: one for one in read_jsonl(samples / PROBLEMS, Problem)}
    right, wrong = (read_jsonl(samples / name, Solution) for name in (ACCEPTED, REJECTED))
    chosen = solutions_to_label(right, wrong, context.config.prm_solutions)
    items = [
        {
            "problem": problems[one.problem_id].problem,
            "problem_id": one.problem_id,
            "answer": problems[one.problem_id].answer,
            "source": problems[one.problem_id].source,
            "solution": one.text,
            "correct": one.correct,
        }
        for one in chosen
    ]
    with context.writer(model) as writer:
        labeler = PRMDataGenerator(context.correctness, config, generator=writer)
        data = labeler.generate_prm_dataset(items, resume=folder / "labels.partial.jsonl")
    write_jsonl(folder / LABELS, list(data.solution_rows))
    trainer = PRMTrainer(config)
    metrics = trainer.train(data)
    trainer.save(folder / MODEL)
    held_out = split_by_problem(data.solutions, config.validation_share, config.seed)[1]
    judge = make_judge(
        folder,
        held_out,
        head=folder / MODEL,
        reader=reader,
        opening=_usual_opening(chosen),
        signal=context.config.step_signal,
        device=context.config.device,
    )
    metrics |= {"judge": judge["signal"], "judge_f1": judge["f1"]}
    write_atomically(folder / "metrics.json", json.dumps(metrics, indent=1, default=str) + "\n")
    return Made(files=(MODEL, LABELS, "metrics.json", JUDGE), counts={"solutions": len(items)})


def _usual_opening(solutions: Sequence[Solution]) -> str:
    """What most solutions begin with before their thought."""
    begins = Counter(parted(one.text)[0] for one in solutions)
    return begins.most_common(1)[0][0] if begins else ""


def distillation(
    folder: Path, context: Context, *, teacher: str, student: str, problems: Sequence[Problem], dev: Sequence[Problem]
) -> Made:
    """Stage 5: the best model teaches the student, on its verified solutions."""
    config = context.config.distillation(teacher, student, folder / "training")
    kind: Callable[..., Any] = ProgressiveDistiller if config.curriculum_learning else ReasoningDistiller
    with context.writer(teacher) as writer:
        distiller = kind(config, context.correctness, teacher=writer)
        train = distiller.progressive_distillation if config.curriculum_learning else None
        train = train or distiller.distill_with_reasoning_preservation
        told = train(list(problems), list(dev))
    place_model(distiller.model_path, folder)
    write_atomically(folder / "distillation.json", json.dumps(told, indent=1, default=str) + "\n")
    return Made(files=(MODEL, "distillation.json"), counts={"problems": len(problems)})


def evaluation(
    folder: Path, context: Context, *, stage: str, model: str, problems: Sequence[Problem], judge: Path | None
) -> Made:
    """A model on problems that no stage has seen."""
    scorer = load_judge(judge, device=context.config.device) if judge is not None else None
    with context.writer(model) as writer:
        report = evaluate(
            stage,
            writer,
            problems,
            context.correctness,
            context.config.judging(),
            scorer=scorer,
        )
    write_atomically(folder / REPORT, json.dumps(report.as_dict(), indent=1) + "\n")
    return Made(files=(REPORT,), counts={"problems": report.num_evaluated, "excluded": report.excluded})


def read_report(folder: Path) -> EvalReport:
    """What `evaluation` has left."""
    return EvalReport.from_dict(json.loads((folder / REPORT).read_text()))


def write_solutions(file: Path, samples: Path, most: int = 200) -> int:
    """The accepted solutions with the highest scores, as the original's `high_quality_solutions.json`."""
    problems = {one.id: one.problem for one in read_jsonl(samples / PROBLEMS, Problem)}
    accepted = sorted(read_jsonl(samples / ACCEPTED, Solution), key=lambda one: -(one.score or 0.0))[:most]
    content: list[Mapping[str, Any]] = [
        {"problem": problems[one.problem_id], "solution": one.text, "score": one.score} for one in accepted
    ]
    write_atomically(file, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return len(content)
