"""A value that no option of a config is: told when the config is made, with all that are possible."""

from dataclasses import dataclass
from typing import Literal

import pytest

from verl.classmate.errors import ConfigError
from verl.reasoning.choices import check_choices
from verl.reasoning.pipeline_config import read_config


@dataclass(frozen=True)
class Options:
    plain: Literal["a", "b"] = "a"
    or_none: Literal["c"] | None = None
    open: Literal["d"] | str = "any"
    number: int | None = 3


def test_only_closed_lists_are_checked() -> None:
    check_choices(Options(or_none="c"))
    with pytest.raises(ConfigError, match="plain='c' is not possible; write one of: a, b"):
        check_choices(Options(plain="c"))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="or_none='d' is not possible; write one of: c, None"):
        check_choices(Options(or_none="d"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        {"pure_rl": {"algorithm": "ppoo"}},
        {"cot": {"kl_mode": "both"}},
        {"rejection": {"vote": "all"}},
        {"fine_tune": {"backend": "trl"}},
        {"prm": {"label_mode": "human"}},
        {"distill": {"mode": "logits"}},
        {"step_signal": "best"},
    ],
)
def test_each_stage_names_its_mistake(given: dict[str, object]) -> None:
    (wrong,) = next(iter(given.values())).values() if isinstance(next(iter(given.values())), dict) else given.values()
    with pytest.raises(ConfigError, match=rf"{wrong}.*write one of"):
        read_config(given)
