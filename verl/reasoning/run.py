"""The pipeline as a command.

    python -m verl.reasoning.run config=pipeline.yaml train=train.jsonl test=test.jsonl output_dir=outputs/reasoning
    python -m verl.reasoning.run config=embedded            # the embedded world, all five stages, no download

`config` is a YAML file with the options of `ReasoningPipelineConfig`, or `embedded`; each may be written behind it
(`pure_rl_iterations=40`, `prm.num_epochs=2`). `train` and `test` are JSONL files of problems with answers. The same
command after a kill goes on.
"""

import sys
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl.classmate.errors import ConfigError
from verl.reasoning.records import Problem, as_problem, lines_of
from verl.reasoning.world_config import EMBEDDED, embedded

FLAGS = ("-h", "--help")


def main(arguments: list[str]) -> int:
    """Runs the command; its exit code."""
    if not arguments or set(arguments) & set(FLAGS):
        print(__doc__)
        return 0 if arguments else 2
    try:
        return _run(arguments)
    except (ConfigError, ValueError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command goes on", file=sys.stderr)
        return 130


def _run(arguments: list[str]) -> int:
    wrong = [one for one in arguments if "=" not in one]
    if wrong:
        raise ConfigError(f"{wrong[0]!r} is no option; write key=value, for instance config=pipeline.yaml")
    given: Any = OmegaConf.to_container(_written(arguments))
    name = given.pop("config", None)
    files = {key: given.pop(key, None) for key in ("train", "test", "reward")}
    values: dict[str, Any] = {}
    problems = None
    if name == EMBEDDED:
        values, problems = embedded(Path(str(given.get("output_dir") or "outputs/reasoning")), given)
    elif name is not None:
        values = _read(Path(str(name)))
        files = {key: value or values.pop(key, None) for key, value in files.items()}
    merged: Any = OmegaConf.to_container(OmegaConf.merge(OmegaConf.create(values), OmegaConf.create(given)))
    # Not at the top: they import torch, which --help and wrong files do not need.
    from verl.reasoning.pipeline import ReasoningModelPipeline
    from verl.reasoning.pipeline_config import read_config

    config = read_config(merged)
    train, test = problems or ([], [])
    train, test = _problems(files["train"]) or train, _problems(files["test"]) or test
    if not train or not test:
        raise ConfigError("no problems; write train=FILE.jsonl test=FILE.jsonl, or config=embedded")
    results = ReasoningModelPipeline(config, _reward(files["reward"])).run_pipeline(train, test)
    print(Path(results["report_path"]).read_text())
    return 0


def _written(arguments: list[str]) -> Any:
    try:
        return OmegaConf.from_dotlist(arguments)
    except (OmegaConfBaseException, ValueError) as error:
        raise ConfigError(f"{' '.join(arguments)} cannot be read ({error}); write key=value") from None


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ConfigError(f"config={path} is not there; write a YAML file, or config={EMBEDDED}")
    try:
        values: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except Exception as error:  # YAML has errors of its own kinds.
        raise ConfigError(f"{path} cannot be read: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds no options; write key: value, one a line")
    return values


def _problems(file: str | None) -> list[Problem]:
    if not file:
        return []
    import json

    path = Path(file)
    if not path.is_file():
        raise ConfigError(f"{file} is not there; write a JSONL file with problem and answer in each line")
    found = []
    for number, line in enumerate(lines_of(path.read_text()), 1):
        if line.strip():
            try:
                found.append(as_problem(json.loads(line)))
            except (ValueError, TypeError, AttributeError) as error:
                raise ConfigError(f"{file}, line {number}: no problem ({error})") from None
    return found


def _reward(written: str | None) -> Any:
    """A function of a module: `package.module:function`; None: the answer."""
    if not written:
        return None
    import importlib

    module, colon, name = written.partition(":")
    if not colon:
        raise ConfigError(f"reward={written}; write reward=module:function")
    try:
        sys.path.insert(0, "")
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"reward={written} cannot be imported: {error}") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
