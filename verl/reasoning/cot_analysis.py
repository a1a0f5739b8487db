"""Which patterns of reasoning a model's chains of thought show, and whether right ones show others (docs/reasoning.md).

One decision: a response may show several patterns, or none; counts are of one call, so that two calls do not add up.

    >>> analyzer = ChainOfThoughtAnalyzer(model, tokenizer)
    >>> analyzer.analyze_cot_patterns(responses)["dominant_pattern"]
    'step_based'
    >>> print(analyzer.generate_cot_report(test_problems, model))
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verl.reasoning.backends import GenBackend, SamplingParams
from verl.reasoning.cot_rewards import clarity, completeness, flow, language_share
from verl.reasoning.reading import Tags, read_solution
from verl.reasoning.records import Problem, Solution, as_problems
from verl.reasoning.scoring import math_reward, score_solutions
from verl.reasoning.shaping import repetition
from verl.stepwise import lexicon
from verl.stepwise.lexicon import has, words_of

_STEP_HEAD = re.compile(r"^[ \t]{0,3}(?:\*\*)?(?:step[ \t]{1,2}\d|\d{1,3}[.)][ \t])", re.IGNORECASE | re.MULTILINE)
_BECAUSE = words_of("because, since, therefore, thus, hence, consequently, as a result")
_ENUMERATION = words_of("first, firstly, second, secondly, third, thirdly, finally, lastly")
_BACKWARD = words_of(
    "work backwards, working backwards, work backward, working backward, in order to get, starting from the answer"
)
_AHA = words_of("aha, wait, that's it, i see now, oh, now i see, hold on")
_CORRECTS = words_of(
    "correction, should be, should have been, instead of, i meant, let me correct, let me fix, corrected"
)

PATTERNS: Mapping[str, Callable[[str], bool]] = {
    "step_based": lambda text: has(_STEP_HEAD, text),
    "because_therefore": lambda text: has(_BECAUSE, text),
    "equation_based": lambda text: text.count("=") > 2,
    "enumeration": lambda text: len({word.lower() for word in _ENUMERATION.findall(text)}) >= 2,
    "recursive": lambda text: text.count("(") > 3,
}
"""How a thought is built."""
BEHAVIOURS: Mapping[str, Callable[[str], bool]] = {
    "verification": lambda text: has(lexicon.VERIFIES, text),
    "backtracking": lambda text: has(lexicon.BACKTRACKS, text),
    "subgoal": lambda text: has(lexicon.SUBGOALS, text),
    "backward_chaining": lambda text: has(_BACKWARD, text),
    "case_split": lambda text: has(lexicon.CASES, text),
    "self_correction": lambda text: has(lexicon.BACKTRACKS, text) and has(_CORRECTS, text),
}
"""What is done in it."""
_MARKERS = (
    lexicon.CONCLUDES,
    lexicon.JUSTIFIES,
    lexicon.PROGRESSES,
    lexicon.VERIFIES,
    lexicon.BACKTRACKS,
    lexicon.SUBGOALS,
    lexicon.CASES,
    lexicon.ANALOGIES,
)


class ChainOfThoughtAnalyzer:
    """Counts patterns; `model` and `tokenizer` are needed only to write responses for the report."""

    def __init__(self, model: Any = None, tokenizer: Any = None, *, tags: Tags | None = None) -> None:
        """`model` is a `GenBackend`, or a model of transformers (or its path) with its tokenizer."""
        self.model, self.tokenizer, self.tags = model, tokenizer, tags or Tags()

    def analyze_cot_patterns(
        self, responses: Sequence["str | Solution | Mapping[str, Any]"], *, correct: Sequence[bool | None] | None = None
    ) -> dict[str, Any]:
        """Patterns and behaviours of the responses' thoughts.

        Args:
            responses: texts, solutions, or the mappings of the original (`full_response` or `thinking_steps`).
            correct: whether each is right; None: as solutions know it.

        Returns:
            `pattern_distribution`: pattern -> share of responses, several may hold, `none` where none does;
            `dominant_pattern`: the most frequent, None without any; `pattern_diversity`: entropy of the patterns over
            that of as many equal ones, 0 to 1; `avg_step_length` in words; `reasoning_depth`: mean number of different
            logical markers; `by_correctness`: the same distribution of `correct` and of `incorrect` ones;
            `behaviours`, `aha_rate`, `reflections_per_1k_tokens`, `repetition`, `language_mix`, `num_responses`. Means
            are None without responses.

        Raises:
            ValueError: as many verdicts as responses were not given.
        """
        solutions = [self._read(one) for one in responses]
        verdicts = list(correct) if correct is not None else [one.correct for one in solutions]
        if len(verdicts) != len(solutions):
            raise ValueError(f"{len(solutions)} responses and {len(verdicts)} verdicts; give as many")
        texts = [one.thinking or one.text for one in solutions]
        shares = _shares(texts, PATTERNS)
        steps = [step.text for one in solutions for step in one.steps]
        right = [text for text, verdict in zip(texts, verdicts, strict=True) if verdict is True]
        wrong = [text for text, verdict in zip(texts, verdicts, strict=True) if verdict is False]
        shown = {name: share for name, share in shares.items() if name != "none" and share > 0}
        tokens = sum(one.n_tokens or len(text.split()) for one, text in zip(solutions, texts, strict=True))
        reflections = sum(
            len(words.findall(text)) for text in texts for words in (lexicon.VERIFIES, lexicon.BACKTRACKS)
        )
        return {
            "num_responses": len(texts),
            "pattern_distribution": shares,
            "dominant_pattern": max(shown, key=lambda name: shown[name]) if shown else None,
            "pattern_diversity": _evenness(list(shown.values())),
            "avg_step_length": _mean([len(step.split()) for step in steps]),
            "reasoning_depth": _mean([_depth(text) for text in texts]),
            "behaviours": {name: share for name, share in _shares(texts, BEHAVIOURS).items() if name != "none"},
            "aha_rate": _mean([has(_AHA, text) for text in texts]),
            "reflections_per_1k_tokens": 1000 * reflections / tokens if tokens else None,
            "repetition": _mean([repetition(text) for text in texts]),
            "language_mix": _mean([1 - language_share(text) for text in texts]),
            "by_correctness": {
                "correct": {**_shares(right, PATTERNS), **_shares(right, BEHAVIOURS, none=False)} if right else {},
                "incorrect": {**_shares(wrong, PATTERNS), **_shares(wrong, BEHAVIOURS, none=False)} if wrong else {},
            },
        }

    def generate_cot_report(
        self,
        test_problems: Sequence["Problem | str | Mapping[str, Any]"],
        model: Any = None,
        *,
        reward: Callable[..., Any] | None = None,
        sampling: SamplingParams | None = None,
    ) -> str:
        """A page of text: how the model reasons on the problems, one response each.

        Args:
            test_problems: with gold answers, where right and wrong are to be told apart.
            model: as in the constructor; None: that one.
            reward: says what is right; None: math-verify.
            sampling: how responses are drawn.

        Raises:
            ValueError: there is no model.
        """
        problems = as_problems(test_problems)
        writer = self._backend(model if model is not None else self.model)
        written = writer.generate([one.problem for one in problems], n=1, sampling=sampling) if problems else []
        solutions = [
            read_solution(completion.text, problem_id=problem.id, tags=self.tags, n_tokens=len(completion.token_ids))
            for problem, (completion, *_) in zip(problems, written, strict=True)
            if completion.ok
        ]
        scored = score_solutions(reward or math_reward(), problems, solutions)
        lost = len(problems) - len(solutions)
        return _report(self.analyze_cot_patterns(scored.solutions), scored.solutions, scored.line, lost)

    def _read(self, response: "str | Solution | Mapping[str, Any]") -> Solution:
        if isinstance(response, Solution):
            return (
                response if response.steps else read_solution(response.text, tags=self.tags, correct=response.correct)
            )
        if isinstance(response, str):
            return read_solution(response, tags=self.tags)
        steps = response.get("thinking_steps")
        text = response.get("full_response") or response.get("text") or "\n".join(map(str, steps or ()))
        return read_solution(str(text), tags=self.tags, correct=response.get("correct"))

    def _backend(self, model: Any) -> GenBackend:
        if model is None:
            raise ValueError("there is no model to write responses; write ChainOfThoughtAnalyzer(model, tokenizer)")
        if hasattr(model, "continue_from"):
            return model
        # Imported here: patterns are counted without an engine.
        from verl.reasoning.backend_hf import HFBackend

        return HFBackend(model, self.tokenizer)


def _shares(texts: Sequence[str], of: Mapping[str, Callable[[str], bool]], *, none: bool = True) -> dict[str, float]:
    counts: Counter[str] = Counter()
    for text in texts:
        shown = [name for name, shows in of.items() if shows(text)]
        counts.update(shown or (["none"] if none else []))
    names = [*of, "none"] if none else list(of)
    return {name: counts[name] / len(texts) if texts else 0.0 for name in names}


def _evenness(shares: Sequence[float]) -> float:
    total = math.fsum(shares)
    parts = [share / total for share in shares if share > 0] if total else []
    return -math.fsum(part * math.log(part) for part in parts) / math.log(len(PATTERNS)) if len(parts) > 1 else 0.0


def _depth(text: str) -> int:
    return len({" ".join(found.lower().split()) for words in _MARKERS for found in words.findall(text)})


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _report(found: Mapping[str, Any], solutions: Sequence[Solution], line: str, lost: int) -> str:
    thoughts = [[step.text for step in one.steps] for one in solutions]
    right = [one.correct for one in solutions if one.correct is not None]
    numbers: dict[str, float | None] = {
        "accuracy": _mean([float(one) for one in right]),
        "steps a response": _mean([len(steps) for steps in thoughts]),
        "words a step": found["avg_step_length"],
        "clarity": _mean([clarity(steps) for steps in thoughts]),
        "flow": _mean([flow(steps) for steps in thoughts]),
        "completeness": _mean([completeness(steps) for steps in thoughts]),
        "depth (different markers)": found["reasoning_depth"],
        "diversity of patterns": found["pattern_diversity"],
        "aha rate": found["aha_rate"],
        "reflections per 1,000 tokens": found["reflections_per_1k_tokens"],
        "repetition": found["repetition"],
        "other scripts": found["language_mix"],
    }
    lines = ["Chains of thought", "=================", "", f"{line}; {lost} responses failed", ""]
    lines += [f"{name:<32}{'-' if value is None else format(value, '8.3f')}" for name, value in numbers.items()]
    lines += ["", f"dominant pattern: {found['dominant_pattern'] or 'none'}", ""]
    lines += [f"{'':<32}{'all':>8}{'right':>8}{'wrong':>8}"]
    shares = {**found["pattern_distribution"], **found["behaviours"]}
    for name, share in shares.items():
        sides = [found["by_correctness"][side].get(name) for side in ("correct", "incorrect")]
        shown = "".join(f"{'-':>8}" if one is None else f"{one:8.3f}" for one in (share, *sides))
        lines.append(f"{name:<32}{shown}")
    return "\n".join(lines) + "\n"
