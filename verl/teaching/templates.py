"""The prompts of adaptive teaching, as values that a user may replace: B, P, T and W; A and R of teachers who ask.

One decision: a set of templates is checked as a whole when it is made, so that a run cannot start with an outline that
asks for the answer, a teacher who is told it, or two students who are asked for it in different words.

    >>> templates = Templates.from_mapping({"student_diagnostic_template": "Plan in {probe_limit} tokens: {question}"})
    >>> templates.baseline("What is 58 + 27?")
    [{'role': 'user', 'content': 'What is 58 + 27?\\n\\nThink step by step. ...'}]

B `student_baseline_template`: the question alone. P `student_diagnostic_template`: an outline, the probe.
T `teacher_adaptive_template`: question and outline to the teacher. W `student_with_teaching_template`: question and
teaching. A `teacher_probe_template` and R `student_probe_template`: what a teacher reads that writes the probe's
question itself (`probe.author: teacher`), and how it is put to the student. Questions, outlines and teachings are
escaped (`TeachingTags.escaped`), so that none can end a section.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from verl.classmate.errors import ConfigError
from verl.teaching.tags import TeachingTags, is_blank

Messages = list[dict[str, str]]
"""A chat: `role` and `content` of each turn."""

_NAMES = (
    "question",
    "answer_format",
    "probe_limit",
    "approach",
    "student_name",
    "teaching_limit",
    "teaching",
    "question_limit",
    "probe_question",
)
"""All placeholders there are."""
_PLACEHOLDER = re.compile(rf"\{{({'|'.join(_NAMES)})\}}")
_WORD_IN_BRACES = re.compile(r"(?<![A-Za-z0-9}\]^_\\{])\{([A-Za-z_][\w-]+)\}(?!\})")
"""What is meant for a placeholder: braces behind a letter or a bracket, as in `\\frac{ab}{cd}`, are LaTeX's."""
_ANSWER_PLACEHOLDERS = ("ground_truth", "answer", "solution", "reference_solution", "truth")
_ANSWER_MARKS = (r"\boxed", "####")
"""What else `answers.extract_answer` finds an answer by."""

NO_APPROACH = "(The student was not asked for a plan.)"
"""What the teacher reads where there is no probe (`max_probe_tokens: 0`)."""
NO_NAME = "The student"
"""What the teacher reads where the student has no name."""

ANSWER_FORMAT = "Think step by step. Then write only your final answer between <solution> and </solution>."
"""What B and W ask for in the same words."""


@dataclass(frozen=True, kw_only=True)
class Template:
    """One prompt, with placeholders in braces."""

    user: str
    """The user's turn."""
    system: str | None = None
    """The system turn; None: there is none."""

    @property
    def text(self) -> str:
        """Both turns."""
        return f"{self.system or ''}\n{self.user}"

    @property
    def placeholders(self) -> list[str]:
        """The known placeholders, in their order."""
        return _PLACEHOLDER.findall(self.text)


_BASELINE = Template(user="{question}\n\n{answer_format}")
_DIAGNOSTIC = Template(
    user=(
        "{question}\n\nIn at most {probe_limit} tokens, say how you would approach this: what kind of problem it is, "
        "and the steps you would take. Do not carry the steps out and do not compute the answer."
    )
)
_ADAPTIVE = Template(
    system=(
        "You are a teacher. You read a problem and a student's plan for it, and decide how much help this student "
        "needs. The student will then solve the problem alone, reading what you wrote.\n\n"
        "First think between <thinking> and </thinking>; the student never sees this part. Is the plan sound? Where "
        "would it go wrong?\n"
        "Then address the student between <teaching> and </teaching>. A student with a sound plan needs little: a "
        "word that confirms it. One who misses a step needs a hint or a question about it. One who is lost needs the "
        "way step by step. Wrong or needless advice does harm: if no help is needed, write nothing in the visible "
        "tag: <teaching></teaching>.\n"
        "Teach the way and never give the final answer. Use at most {teaching_limit} tokens in the visible tag, and "
        "fewer where fewer do."
    ),
    user="Problem:\n{question}\n\n{student_name} plans:\n{approach}",
)
_WITH_TEACHING = Template(
    user=(
        "{question}\n\nA teacher who has read this problem advises you. The advice may help; check it yourself.\n"
        "<advice>\n{teaching}\n</advice>\n\n{answer_format}"
    )
)
_TEACHER_PROBE = Template(
    system=(
        "You are a teacher. A student is about to solve a problem, and before it does you may ask it one question. "
        "From its reply you will judge how much help it needs; then you will advise it.\n\n"
        "First think between <thinking> and </thinking>; the student never sees this part. Where do students go wrong "
        "with such a problem?\n"
        "Then write your question between <teaching> and </teaching>, the only part that the student sees. It has room "
        "for a short reply and does not solve the problem yet. If you need not ask, write nothing in the visible tag: "
        "<teaching></teaching>. Write at most {question_limit} tokens in all."
    ),
    user="Problem:\n{question}",
)
_STUDENT_PROBE = Template(
    user=(
        "{question}\n\nBefore you solve this, your teacher asks you:\n{probe_question}\n\nReply in at most "
        "{probe_limit} tokens. Do not solve the problem yet."
    )
)

_ROLES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = MappingProxyType(
    {
        "student_baseline_template": (("question",), ("answer_format",)),
        "student_diagnostic_template": (("question", "probe_limit"), ()),
        "teacher_adaptive_template": (("question", "approach"), ("teaching_limit", "student_name")),
        "student_with_teaching_template": (("question", "teaching"), ("answer_format",)),
        "teacher_probe_template": (("question",), ("question_limit", "student_name")),
        "student_probe_template": (("question", "probe_question", "probe_limit"), ()),
    }
)
"""Key -> the placeholders that it must hold, and those that it may hold besides."""
_USER_ALONE = ("student_diagnostic_template", "student_with_teaching_template", "student_probe_template")


@dataclass(frozen=True, kw_only=True)
class Templates:
    """The prompts of a run.

    Raises:
        ConfigError: a placeholder is missing or unknown, or the contract between templates, tags and extraction is
            broken.
    """

    student_baseline_template: Template = _BASELINE
    """B: user, and system if wanted. Without any hint."""
    student_diagnostic_template: Template = _DIAGNOSTIC
    """P: user. Asks for a plan, never for the answer."""
    teacher_adaptive_template: Template = _ADAPTIVE
    """T: system and user. Names the tags, the way to abstain and the budget; never holds the ground truth."""
    student_with_teaching_template: Template = _WITH_TEACHING
    """W: user; B's system turn stands before it. B with the teaching, fenced as advice."""
    teacher_probe_template: Template = _TEACHER_PROBE
    """A: user, and system if wanted. Asks the teacher for a question to its student (probe.author: teacher). Names the
    tags, of which the visible one holds the question, and the budget; never holds the ground truth."""
    student_probe_template: Template = _STUDENT_PROBE
    """R: user. Puts the teacher's question to the student, in the place of P; never asks for the answer itself."""
    answer_format: str = ANSWER_FORMAT
    """How the answer is to be marked, in the words of both B and W, where `{answer_format}` stands for it."""
    tags: TeachingTags = field(default_factory=TeachingTags)
    """The delimiters; `extract_teaching` and `extract_answer` are given the same."""

    def __post_init__(self) -> None:
        for key in _ROLES:
            _check_placeholders(key, getattr(self, key))
        _check_answer_format(self)
        _check_student_prompts(self)
        _check_teacher_prompt(self, "teacher_adaptive_template", "teaching_limit", "max_teaching_tokens")

    def check_probe_author(self) -> None:
        """For a teacher that asks: that it is told the tags, and how much it may write.

        Raises:
            ConfigError: it is not.
        """
        _check_teacher_prompt(self, "teacher_probe_template", "question_limit", "probe.max_question_tokens")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any] | None, tags: TeachingTags | None = None) -> "Templates":
        """The defaults, with what a user replaced.

        Args:
            values: by field, a text for the user's turn or `{system, user}`; a text for `answer_format`. None: nothing
                is replaced.
            tags: the delimiters; the usual ones unless given.

        Raises:
            ConfigError: an unknown key or a wrong type; whatever else the class raises.
        """
        given: dict[str, Any] = {}
        if not isinstance(values, Mapping | None):
            raise ConfigError(f"templates: {values!r} is no mapping; write the templates by their keys")
        for key, value in (values or {}).items():
            if key == "answer_format":
                given[key] = _text(key, value)
            elif key in _ROLES:
                given[key] = _template(key, value)
            else:
                known = ", ".join([*_ROLES, "answer_format"])
                raise ConfigError(f"templates.{key}: unknown key; write one of: {known}")
        return cls(**given, tags=tags or TeachingTags())

    def baseline(self, question: str) -> Messages:
        """B: what the student is asked alone."""
        return self._messages("student_baseline_template", question=question)

    def diagnostic(self, question: str, *, probe_limit: int) -> Messages:
        """P: what the student is asked for the probe, in at most `probe_limit` of its tokens.

        Raises:
            ConfigError: the limit is no positive number.
        """
        _check_limit("max_probe_tokens", probe_limit, "and ask for no probe where it is 0")
        return self._messages("student_diagnostic_template", question=question, probe_limit=str(probe_limit))

    def adaptive(
        self, question: str, approach: str | None, *, teaching_limit: int, student_name: str | None = None
    ) -> Messages:
        """T: what the teacher is asked.

        Args:
            question: the student's.
            approach: the probe, cut off or not; None where there is none.
            teaching_limit: `max_teaching_tokens`.
            student_name: what the student is called.

        Raises:
            ConfigError: the limit is no positive number.
        """
        _check_limit("max_teaching_tokens", teaching_limit, "as nothing can be taught otherwise")
        return self._messages(
            "teacher_adaptive_template",
            question=question,
            approach=NO_APPROACH if is_blank(approach or "") else str(approach),
            teaching_limit=str(teaching_limit),
            student_name=student_name or NO_NAME,
        )

    def asks_teacher(self, question: str, *, question_limit: int, student_name: str | None = None) -> Messages:
        """A: what the teacher is asked for a question to its student.

        Args:
            question: the student's problem.
            question_limit: `max_question_tokens`.
            student_name: what the student is called.
        """
        values = {"question_limit": str(question_limit), "student_name": student_name or NO_NAME}
        return self._messages("teacher_probe_template", question=question, **values)

    def probing(self, question: str, probe_question: str, *, probe_limit: int) -> Messages:
        """R: what the student is asked with the teacher's question, in the place of P."""
        values = {"probe_question": probe_question, "probe_limit": str(probe_limit)}
        return self._messages("student_probe_template", question=question, **values)

    def with_teaching(self, question: str, teaching: str) -> Messages:
        """W: what the student is asked with a teaching, the visible part alone.

        Raises:
            ValueError: the teaching is blank; such a student is not asked again.
        """
        if is_blank(teaching):
            raise ValueError("a blank teaching has no prompt; take the baseline's score for the guided one")
        return self._messages("student_with_teaching_template", question=question, teaching=teaching)

    @property
    def baseline_hash(self) -> str:
        """Sha256 of all that B consists of; a part of the key of stored baselines."""
        return _sha256(self.student_baseline_template, self.answer_format, self.tags)

    @property
    def hash(self) -> str:
        """Sha256 of all templates; says which ones a stored row was made with."""
        return _sha256(*(getattr(self, key) for key in _ROLES), self.answer_format, self.tags)

    def _messages(self, key: str, **values: str) -> Messages:
        template: Template = getattr(self, key)
        filled = {name: self.tags.escaped(value) for name, value in values.items()}
        filled["answer_format"] = self.answer_format
        system = template.system
        if key == "student_with_teaching_template":
            # The advice must be the only difference from what the student is asked alone.
            system = self.student_baseline_template.system
        turns = (("system", system), ("user", template.user))
        return [{"role": role, "content": _filled(text, filled)} for role, text in turns if text is not None]


def _check_limit(name: str, value: int, why: str) -> None:
    if value < 1:
        raise ConfigError(f"{name}: {value} tokens are no limit; write 1 or more, {why}")


def _filled(text: str, values: Mapping[str, str]) -> str:
    """In one pass: a placeholder within a value stays what it is."""
    return _PLACEHOLDER.sub(lambda found: values[found[1]], text)


def _sha256(*parts: Any) -> str:
    return hashlib.sha256(json.dumps([repr(part) for part in parts]).encode()).hexdigest()


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"templates.{key}: {value!r} is no text; write one, or leave the key out for the default")
    return value


def _template(key: str, value: Any) -> Template:
    if isinstance(value, Template):
        return value
    if isinstance(value, Mapping):
        if unknown := sorted(map(str, value.keys() - {"system", "user"})):
            raise ConfigError(f"templates.{key}.{unknown[0]}: unknown key; write system and user")
        system = value.get("system")
        return Template(
            user=_text(f"{key}.user", value.get("user")),
            system=None if system is None else _text(f"{key}.system", system),
        )
    return Template(user=_text(key, value))


def _check_placeholders(key: str, template: Template) -> None:
    """Each that must be there is, and no other is."""
    must, may = _ROLES[key]
    for found in _WORD_IN_BRACES.findall(template.text) + template.placeholders:
        if found in must or found in may:
            continue
        if found in _ANSWER_PLACEHOLDERS:
            raise ConfigError(f"templates.{key}: {{{found}}} would give the answer away; take it out")
        possible = ", ".join(f"{{{name}}}" for name in must + may)
        raise ConfigError(f"templates.{key}: unknown placeholder {{{found}}}; write one of: {possible}")
    for name in must:
        if name not in template.placeholders:
            raise ConfigError(f"templates.{key}: the placeholder {{{name}}} is missing; write it where it belongs")
    if template.system is None and key == "teacher_adaptive_template":
        raise ConfigError(f"templates.{key}: no system turn; write system and user")
    if template.system is not None and key in _USER_ALONE:
        raise ConfigError(f"templates.{key}: it has a user turn alone; write system into student_baseline_template")


def _check_answer_format(templates: Templates) -> None:
    """The extraction finds what the student is asked to write."""
    told, tags = templates.answer_format, templates.tags
    solution = (tags.solution_open, tags.solution_close)
    if not all(mark in told for mark in solution) and not any(mark in told for mark in _ANSWER_MARKS):
        raise ConfigError(
            f"templates.answer_format: it names no mark that answers are found by; write {solution[0]} and "
            f"{solution[1]}, or \\boxed{{}}, or ####"
        )
    if found := _PLACEHOLDER.search(told):
        raise ConfigError(f"templates.answer_format: {found[0]} stands for nothing in it; take it out")


def _check_student_prompts(templates: Templates) -> None:
    """The answer is asked for in B and W alone, and the advice in W stands within its fence."""
    tags = templates.tags
    told = (templates.answer_format, tags.solution_open, tags.solution_close, *_ANSWER_MARKS)
    for key in ("student_diagnostic_template", "student_probe_template"):
        if any(mark in getattr(templates, key).text for mark in told):
            raise ConfigError(
                f"templates.{key}: it holds the answer format, but a probe must not be answered; take it out"
            )
    guided = templates.student_with_teaching_template.user
    before, _, behind = guided.partition("{teaching}")
    opened = before.rfind(tags.advice_open) > before.rfind(tags.advice_close)
    closed = 0 <= behind.find(tags.advice_close) < (behind + tags.advice_open).find(tags.advice_open)
    if "{teaching}" in behind or not opened or not closed:
        raise ConfigError(
            "templates.student_with_teaching_template: the teaching is not fenced as advice; write it once, as "
            f"{tags.advice_open} {{teaching}} {tags.advice_close}"
        )
    for key in ("student_baseline_template", "student_with_teaching_template"):
        written = getattr(templates, key).text.replace("{answer_format}", templates.answer_format)
        before, found, after = written.partition(templates.answer_format)
        if not found:
            raise ConfigError(
                f"templates.{key}: the answer format that B and W share is missing; write {{answer_format}} into both"
            )
        if mark := next((mark for mark in told if mark in before + after), None):
            raise ConfigError(
                f"templates.{key}: it holds {mark!r} besides the answer format; write that into answer_format, which "
                "B and W share"
            )


def _check_teacher_prompt(templates: Templates, key: str, limit: str, option: str) -> None:
    """The teacher is told the tags that the extraction looks for, and how much it may write."""
    tags, told = templates.tags, getattr(templates, key).text
    for mark in (tags.private_open, tags.private_close, tags.visible_open, tags.visible_close):
        if mark not in told:
            raise ConfigError(f"templates.{key}: the tag {mark} is missing; write it, as the extraction looks for it")
    if f"{{{limit}}}" not in told and not re.search("[0-9]", told):
        raise ConfigError(f"templates.{key}: it says no budget; write {{{limit}}} ({option})")
