"""`DATA_CONFIGS`: how each data set writes questions, thoughts and solutions, by the id that `data.format` names.

One decision: a format is chosen by its id and never guessed from a path, so that the same file is read in the same way
wherever it lies. An id that nobody has registered is an error; `custom` is an entry like the others.

    >>> config = data_config("bespoke_stratos")
    >>> config.question_and_completion({"conversations": [...], "system": "..."})
    ('What is 58 + 27?', '<|begin_of_thought|>\\n\\n...<|end_of_solution|>')
    >>> register_data_config("mine", DataConfig(think_tag="think", solution_tag="answer", tag_format="r1"))
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from verl.classmate.errors import ConfigError
from verl.data_preprocessing.reasoning_traces.completions import Completion, CompletionFormat, TagFormat
from verl.data_preprocessing.reasoning_traces.rows import Columns, TracedRow, traced_row, truth_in
from verl.data_preprocessing.sources import HubSplit
from verl.teaching.explanation import STYLES, ExplanationFormat
from verl.teaching.student_sets import TraceFormat

THINK_FIRST = (
    "Think before you answer. Write your whole way of thinking between {0} and {1}: ideas, checks, and corrections "
    "where something fails. Then write the solution, complete and in a good order, between {2} and {3}."
)
"""A student's system turn, with the marks of its format."""

DELIMITER = "\n\n"
"""Between thought and solution where neither the format nor the record says."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """How a data set is read, and how students and teachers write what it holds.

    Raises:
        ConfigError: an impossible value.
    """

    system_prompt: str | None = None
    """The student's system turn; None: one that asks for a thought and a solution in the format's marks; "": none."""
    think_tag: str = "thought"
    """X of the thought's marks."""
    solution_tag: str = "solution"
    """X of the solution's."""
    think_prefix: str = ""
    """In front of a thought."""
    think_solution_delimiter: str | None = None
    """Between thought and solution; None: read from the data, a blank line where that does not say."""
    delimiters_padding: str = "\n\n"
    """Between a mark and what it encloses."""
    tag_format: TagFormat = "bespoke"
    """How marks are made: `bespoke` <|begin_of_X|>, `r1` <X>."""
    system_prompt_style: str = "stratos"
    """How a teacher explains a solution (RLT), a key of `verl.teaching.explanation.STYLES`."""
    columns: Columns = field(default_factory=Columns)
    """Where questions, solutions and thoughts stand."""
    conversations: bool = False
    """Whether a record is a chat (`conversations`, with `system` beside it) whose last turn is a marked completion."""
    source: HubSplit | None = None
    """Where the set is on the hub; None: nowhere, so that one has to be named."""
    test_split: str | None = None
    """The source's own test split."""
    data_source: str | None = None
    """What rows are called; None: the format's id."""
    ability: str = "math"
    """Column `ability` of rows."""

    def __post_init__(self) -> None:
        if self.tag_format not in get_args(TagFormat):
            raise ConfigError(f"tag_format: {self.tag_format!r} is not possible; write bespoke or r1")
        if self.system_prompt_style not in STYLES:
            known = ", ".join(STYLES)
            raise ConfigError(f"system_prompt_style: {self.system_prompt_style!r} is not known; write one of: {known}")
        for name, tag in (("think_tag", self.think_tag), ("solution_tag", self.solution_tag)):
            if not tag.isidentifier():
                raise ConfigError(f"{name}: {tag!r} makes no mark; write a word, such as thought")
        if self.think_tag == self.solution_tag:
            raise ConfigError(f"think_tag and solution_tag are both {self.think_tag!r}; write two words")

    @property
    def form(self) -> CompletionFormat:
        """Marks of completions."""
        return CompletionFormat(
            think_tag=self.think_tag,
            solution_tag=self.solution_tag,
            tag_format=self.tag_format,
            padding=self.delimiters_padding,
        )

    @property
    def student_system(self) -> str | None:
        """The student's system turn; None: there is none."""
        return THINK_FIRST.format(*self.form.marks) if self.system_prompt is None else self.system_prompt or None

    @property
    def explanation(self) -> ExplanationFormat:
        """How a teacher explains a solution."""
        return STYLES[self.system_prompt_style]

    @property
    def trace_format(self) -> TraceFormat:
        """How a student's training rows are written (`verl.teaching.student_sets`)."""
        form, pad = self.form, self.delimiters_padding
        return TraceFormat(
            system=self.student_system,
            think_prefix=self.think_prefix,
            think_open=form.think_open + pad,
            think_close=pad + form.think_close,
            delimiter=DELIMITER if self.think_solution_delimiter is None else self.think_solution_delimiter,
            solution_open=form.solution_open + pad,
            solution_close=pad + form.solution_close,
        )

    def read(self, fields: Mapping[str, Any], *, data_source: str = "") -> TracedRow:
        """What a record holds.

        Raises:
            ValueError: it cannot be used; one line.
        """
        if not self.conversations:
            return traced_row(fields, self.columns, data_source=data_source)
        system, question, written = _conversation(fields)
        parts = self.split(written)
        return TracedRow(
            question=question,
            solution=parts.solution,
            trace=parts.think,
            ground_truth=truth_in(parts.solution, data_source),
            system=system,
            prefix=parts.prefix,
            delimiter=parts.delimiter,
        )

    def question_and_completion(self, fields: Mapping[str, Any]) -> tuple[str, str]:
        """Question and marked completion of a record.

        Raises:
            ValueError: it has no thought or no solution, or cannot be used at all.
        """
        row = self.read(fields)
        return row.question, self.completion(row)

    def completion(self, row: TracedRow) -> str:
        """The marked completion of a row.

        Raises:
            ValueError: it has no thought or no solution, or one of them holds a mark.
        """
        if row.trace is None:
            raise ValueError("no reasoning trace")
        if row.solution is None:
            raise ValueError("the solution is blank")
        delimiter = self.delimiter(row)
        prefix = row.prefix or self.think_prefix
        return self.form.join(Completion(prefix=prefix, think=row.trace, delimiter=delimiter, solution=row.solution))

    def delimiter(self, row: TracedRow) -> str:
        """What stands between a row's thought and its solution."""
        if self.think_solution_delimiter is not None:
            return self.think_solution_delimiter
        return DELIMITER if row.delimiter is None else row.delimiter

    def split(self, completion: str) -> Completion:
        """Prefix, thought, delimiter and solution of a completion.

        Raises:
            ValueError: a mark is missing or stands in the wrong place.
        """
        return self.form.split(completion)


def _conversation(fields: Mapping[str, Any]) -> tuple[str | None, str, str]:
    """System turn, question and completion of a record of turns `{from, value}`."""
    turns = fields.get("conversations")
    if turns is None:
        raise ValueError(
            f"no column conversations; there are: {', '.join(map(str, fields))}; choose the --format of this data set"
        )
    said: dict[str, str] = {}
    for turn in turns if isinstance(turns, list) else []:
        if isinstance(turn, Mapping) and isinstance(turn.get("value"), str):
            said.setdefault(str(turn.get("from")), turn["value"])
    question = next((said[name] for name in ("user", "human") if name in said), "")
    written = next((said[name] for name in ("assistant", "gpt") if name in said), "")
    if not question.strip() or not written.strip() or len(turns) != 2:
        raise ValueError("conversations must hold one turn of the user and one of the assistant")
    system = fields.get("system")
    has_system = isinstance(system, str) and system.strip()
    return system if has_system else None, question.replace("\r\n", "\n").strip(), written


DATA_CONFIGS: dict[str, DataConfig] = {}
"""By id, as `data.format` and `--format` name it."""


def register_data_config(name: str, config: DataConfig) -> None:
    """Makes a format known by an id.

    Raises:
        ConfigError: the id is taken by another one.
    """
    if DATA_CONFIGS.setdefault(name, config) != config:
        raise ConfigError(f"data.format: {name!r} is taken; register the format under another id")


def data_config(name: str) -> DataConfig:
    """The format of an id.

    Raises:
        ConfigError: nobody has registered it.
    """
    if name not in DATA_CONFIGS:
        raise ConfigError(f"data.format={name} is not known; write one of: {', '.join(sorted(DATA_CONFIGS))}")
    return DATA_CONFIGS[name]


_STRATOS = DataConfig(
    conversations=True,
    source=HubSplit(repo="bespokelabs/Bespoke-Stratos-17k"),
    data_source="bespoke_stratos",
)
register_data_config("bespoke_stratos", _STRATOS)
# The same rows; the name says that they are for a teacher.
register_data_config("teacher_bespoke_stratos", _STRATOS)
register_data_config(
    "s1k",
    DataConfig(
        columns=Columns(trace=("reasoning_trace", "gemini_thinking_trajectory", "deepseek_thinking_trajectory")),
        source=HubSplit(repo="simplescaling/s1K"),
    ),
)
register_data_config(
    "medical_o1",
    DataConfig(
        columns=Columns(
            question=("Open-ended Verifiable Question", "Question"),
            solution=("Response", "Ground-True Answer"),
            trace=("Complex_CoT",),
            ground_truth=("Ground-True Answer",),
        ),
        source=HubSplit(repo="FreedomIntelligence/medical-o1-reasoning-SFT", config="en"),
        ability="medicine",
    ),
)
register_data_config(
    "gsm8k",
    DataConfig(
        columns=Columns(question=("question",), solution=("answer",), ground_truth=()),
        source=HubSplit(repo="openai/gsm8k", config="main"),
        test_split="test",
        data_source="openai/gsm8k",
    ),
)
register_data_config(
    "adaptive_teaching",
    DataConfig(
        columns=Columns(question=("problem_text", "question", "prompt", "problem")),
        source=HubSplit(repo="Arc-Intelligence/Arc-ATLAS-Teach-v0"),
    ),
)
register_data_config("custom", DataConfig())
