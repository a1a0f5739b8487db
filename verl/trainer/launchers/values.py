"""Values as users type them behind a documented name, checked and written so that Hydra reads the same.

One decision: a documented name has a kind, so that a path stays text whatever characters it holds, and a mistyped
number is told under the name that was typed. Keys of the config are Hydra's own business.

    >>> written(TEXT, "model_name_or_path", "my models/a=b")
    "'my models/a=b'"
"""

import math
import re
from typing import Literal

import hydra
from hydra.core.override_parser.overrides_parser import OverridesParser

from verl.classmate.errors import ConfigError

Kind = Literal["text", "texts", "count", "budget", "steps", "number", "switch"]
"""text: one; texts: one or a list `[a,b]`; count: a whole number of 1 or more; budget: of 0 or more; steps: a
count, or null for no limit; number; switch: true or false."""

_EMPTY = ("null", "none")


def written(kind: Kind, name: str, value: str) -> str:
    """The value for Hydra.

    Args:
        kind: what the name takes.
        name: for the message.
        value: as typed.

    Raises:
        ConfigError: it is of another kind.
    """
    if kind == "text":
        return quoted(plain_text(name, value))
    if kind == "texts":
        texts = text_list(name, value)
        return quoted(texts[0]) if len(texts) == 1 else f"[{','.join(map(quoted, texts))}]"
    # A number of rollouts, steps or tokens there must be; leaving the name out keeps the run file's.
    if value.strip().lower() in _EMPTY and kind not in ("count", "budget"):
        return "null"
    if kind == "switch":
        if value.strip().lower() not in ("true", "false"):
            raise ConfigError(f"{name}={value}: expected true or false")
        return value.strip().lower()
    return _number(kind, name, value)


def _number(kind: Kind, name: str, value: str) -> str:
    text = value.strip().strip("\"'")
    if kind in ("count", "budget", "steps"):
        least = 0 if kind == "budget" else 1
        if not re.fullmatch(r"\+?[0-9]+", text) or int(text) < least:
            raise ConfigError(f"{name}={value}: expected a whole number of {least} or more")
        return str(int(text))
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"{name}={value}: expected a number")
    # A number such as 1e-6 as it was typed.
    return text


def count(name: str, value: str) -> int:
    """A whole number of 1 or more.

    Raises:
        ConfigError: it is none.
    """
    return int(_number("count", name, value))


def plain_text(name: str, value: str) -> str:
    """A text without the quotes that were typed for Hydra.

    Raises:
        ConfigError: nothing is left.
    """
    text = value.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1].replace(f"\\{text[0]}", text[0])
    if not text or text.lower() in _EMPTY:
        raise ConfigError(f"{name}={value}: expected a name or a path; leave {name} out for what the run file says")
    return text


def text_list(name: str, value: str) -> list[str]:
    """One text, or those of a list.

    Raises:
        ConfigError: the list is empty or cannot be read.
    """
    if not (value.strip().startswith("[") and value.strip().endswith("]")):
        return [plain_text(name, value)]
    try:
        read = OverridesParser.create().parse_override(f"x={value.strip()}").value()
    except hydra.errors.HydraException:
        read = None
    if not isinstance(read, list) or not read or not all(isinstance(one, str) and one for one in read):
        raise ConfigError(f"{name}={value}: expected a name, a path or a list [A,B]; put quotes around odd characters")
    return read


def quoted(text: str) -> str:
    """A text for Hydra: as it is if Hydra reads it as this text, else in quotes."""
    try:
        same = OverridesParser.create().parse_override(f"x={text}").value() == text
    except hydra.errors.HydraException:
        same = False
    # In a list or a mapping a comma or a colon would end it.
    if same and not re.search(r"[\\,:\[\]{}()]", text.replace("://", "")):
        return text
    escaped = re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), text)
    return f"'{escaped}'"


def hydra_value(value: object) -> str:
    """A plain value (text, number, switch, null, list, mapping) for Hydra."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{hydra_value(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(hydra_value, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    return quoted(value) if isinstance(value, str) else str(value)
