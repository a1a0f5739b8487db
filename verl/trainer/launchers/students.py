"""Servers for a run's students: which of them need one, on which GPUs, and how the run is told.

One decision: hosting is `verl.trainer.hosting`, as for classmates. GPUs are dealt out to the students in turn; what one
student has beyond the width of an engine is used by further engines behind the same server, which share its requests.

    >>> [one.gpus for one in servers(students, ("0", "1", "2", "3"), hosting)]
    [('0', '1', '2', '3')]
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from verl.classmate.errors import ConfigError
from verl.trainer.hosting.options import Options
from verl.trainer.launchers.composing import value_of
from verl.trainer.launchers.values import hydra_value
from verl.utils.model_servers.mapping import canonical_name

FIRST_PORT = 8765
"""Servers listen on the first free ports from here on."""

NODES = ("rcl.students", "rcl.unseen_students")
MAPPING_KEY = "reward_model.classmate_cot_reward_configs.host_classmate_name_to_url_json_fn"
_SERVERS_OWN = ("tensor_parallel_size", "gpu_memory_utilization", "placement", "replicas")
"""Settings of an engine, which a run does not know of a server."""


@dataclass(frozen=True, kw_only=True)
class Hosting:
    """How students are hosted; the node `launch.servers`."""

    mapping: Path
    """File that tells the run where they are."""
    backend: str
    """vllm or hf."""
    seed: int
    """Of the first server; the next ones have the next numbers."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    start_timeout_s: float = 1800.0
    """Longest time until a server answers."""
    max_model_len: int | None = None
    """Most tokens of prompt and answer together; None: the model's own limit."""


def hosting_of(node: Mapping[str, Any], *, mapping: Path, backend: str, seed: int) -> Hosting:
    """The node `launch.servers`.

    Args:
        node: as the config has it.
        mapping: file that tells the run where the servers are.
        backend: what `auto` comes to.
        seed: of the first server.

    Raises:
        ConfigError: a value that is not possible.
    """
    named = str(node.get("backend", "auto"))
    if named not in ("auto", "vllm", "hf"):
        raise ConfigError(f"launch.servers.backend={named} is not possible; write auto, vllm or hf")
    timeout, longest = node.get("start_timeout_s", 1800), node.get("max_model_len")
    if not isinstance(timeout, int | float) or not timeout > 0:
        raise ConfigError(f"launch.servers.start_timeout_s={timeout}: expected seconds; write 1800")
    if longest is not None and (type(longest) is not int or longest < 1):
        raise ConfigError(f"launch.servers.max_model_len={longest}: expected a number of tokens; write 8192, or null")
    return Hosting(
        mapping=mapping,
        backend=backend if named == "auto" else named,
        seed=seed,
        host=str(node.get("host", "127.0.0.1")),
        start_timeout_s=float(timeout),
        max_model_len=longest,
    )


def students_of(config: DictConfig, *, without: Collection[str] = ()) -> dict[str, list[dict[str, Any]]]:
    """Node -> its students, as plain settings.

    Args:
        config: the composed config.
        without: nodes that may be empty, since somebody else fills them.

    Raises:
        ConfigError: there are none to train with, or one has no model.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for node in NODES:
        entries = value_of(config, node) or []
        if not isinstance(entries, list) or not all(isinstance(one, dict) and one.get("model") for one in entries):
            raise ConfigError(f"{node}: expected a list of students; write '{node}=[{{model: NAME}}]'")
        found[node] = entries
    if not found[NODES[0]] and NODES[0] not in without:
        raise ConfigError(f"{NODES[0]} is empty; write student_model=NAME, or '{NODES[0]}=[{{model: NAME}}]'")
    return found


def _needs_server(student: dict[str, Any]) -> bool:
    return student.get("backend") in (None, "auto")


def told(students: dict[str, list[dict[str, Any]]], mapping: Path) -> list[str]:
    """Overrides with which the run asks the servers."""
    lines = []
    for node, entries in students.items():
        asked = [
            {key: value for key, value in one.items() if key not in _SERVERS_OWN} | {"backend": "openai"}
            if _needs_server(one)
            else one
            for one in entries
        ]
        if entries:
            lines.append(f"{node}={hydra_value(asked)}")
    return [*lines, f"{MAPPING_KEY}={hydra_value(str(mapping))}"]


def servers(students: dict[str, list[dict[str, Any]]], gpus: Sequence[str], hosting: Hosting) -> list[Options]:
    """One server for each student that has none, and its GPUs.

    Raises:
        ConfigError: no student needs one, or one is spread over more GPUs than it can have.
    """
    wanted: dict[str, dict[str, Any]] = {}
    for one in (one for entries in students.values() for one in entries if _needs_server(one)):
        wanted.setdefault(canonical_name(str(one["model"])), one)
    if not wanted:
        raise ConfigError(
            "every student has an engine or a server already (rcl.students.*.backend); write 0 for N_VLLM"
        )
    shares = [_share(index, len(wanted), gpus) for index in range(len(wanted))]
    together = -(-len(wanted) // len(gpus))
    return [
        _options(model, settings, share, index, together, hosting)
        for index, ((model, settings), share) in enumerate(zip(wanted.items(), shares, strict=True))
    ]


def _share(index: int, count: int, gpus: Sequence[str]) -> tuple[str, ...]:
    """The GPUs of one student: neighbours, the first students one more; or one that it shares."""
    if count >= len(gpus):
        return (gpus[index % len(gpus)],)
    size, more = divmod(len(gpus), count)
    first = index * size + min(index, more)
    return tuple(gpus[first : first + size + (index < more)])


def _options(
    model: str, settings: dict[str, Any], share: tuple[str, ...], index: int, together: int, hosting: Hosting
) -> Options:
    width = settings.get("tensor_parallel_size") or 1
    if hosting.backend == "hf":
        width, engines = 1, 1
    else:
        engines = settings.get("replicas") or len(share) // width
    if width * engines > len(share) or engines < 1:
        raise ConfigError(
            f"{model} would be spread over {width * max(1, engines)} GPUs (tensor_parallel_size x replicas), but has "
            f"{len(share)}; write a larger N_VLLM, or smaller numbers"
        )
    return Options(
        models=(model,),
        mapping=hosting.mapping,
        backend=hosting.backend,
        host=hosting.host,
        first_port=FIRST_PORT + index,
        start_timeout_s=hosting.start_timeout_s,
        max_model_len=hosting.max_model_len,
        tensor_parallel_size=width,
        data_parallel_size=engines,
        gpu_memory_utilization=settings.get("gpu_memory_utilization") or int(90 / together) / 100,
        gpus=share[: width * engines],
        seed=hosting.seed + index,
    )
