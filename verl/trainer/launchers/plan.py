"""From a request to what is to be done: preparation, servers, and one plain command of an entry point.

One decision: a plan changes nothing; it is shown (`--dry-run`) or carried out (`running.py`) as it is. What was
typed is composed for it, so that a mistake is told before anything starts.

    >>> plan = make_plan(parse("plain", ["0", "teacher_sft"]))
    >>> plan.shown
    "env ... python -m verl.trainer.teacher_sft --config-name=teacher_sft_trainer ..."
"""

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl.classmate.errors import ConfigError
from verl.trainer.hosting.options import Options, usable_backend
from verl.trainer.launchers import gpus
from verl.trainer.launchers.arguments import Request
from verl.trainer.launchers.composing import Command, check_teaching, composed, value_of
from verl.trainer.launchers.datasets import Preparation, rows_of
from verl.trainer.launchers.evaluating import changed_keys, chosen, evaluation_options, output_file
from verl.trainer.launchers.folders import PRE_RL_MODEL, RESULTS, run_folder, weights_in
from verl.trainer.launchers.overrides import FOLDER, Settings, translate
from verl.trainer.launchers.phases import EVALUATION, WORDS, Phase
from verl.trainer.launchers.run_files import CONFIGS, ROOT, chosen_groups, find, groups_of, phase_of
from verl.trainer.launchers.steps import Step
from verl.trainer.launchers.students import NODES, hosting_of, servers, students_of, told
from verl.trainer.launchers.values import hydra_value, plain_text, quoted
from verl.trainer.launchers.world import World, warm_teacher
from verl.trainer.run.choices import prompts_that_split

STUDENT_NODES = tuple(f"{node}=" for node in NODES)
AT_END = "CLASSMATE_COT_AT_END"
"""`verl.trainer.run.launch.AT_END`, whose import takes seconds."""

CHECKER = "verl.trainer.launchers.checking"
"""A process of its own: it imports what the run imports."""

N_PROMPTS, N_ROLLOUTS = "data.train_batch_size", "actor_rollout_ref.rollout.n"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be done."""

    argv: tuple[str, ...]
    """The final command."""
    environment: dict[str, str]
    """Variables that it is given."""
    folder: Path
    """Where its run is written."""
    identity: tuple[str, ...]
    """The command without what a start chooses: a repeated one goes on with its run."""
    steps: tuple[Step, ...] = ()
    """What comes before, in this order."""
    check: Step | None = None
    """What checks the run before servers start; None without servers, where the run does it at once."""
    servers: tuple[Options, ...] = ()
    """Of the students."""
    world: World | None = None
    """The embedded world, where it is used."""
    notes: tuple[str, ...] = ()
    """What a person should know."""

    @property
    def shown(self) -> str:
        """The final command for a shell."""
        variables = [f"{key}={value}" for key, value in self.environment.items()]
        return shlex.join(["env", *variables, *self.argv] if variables else self.argv)


def make_plan(request: Request, *, configs: Path = CONFIGS, data: Path = ROOT / "data") -> Plan:
    """The plan of a request.

    Args:
        request: what was typed.
        configs: the folder `configs`.
        data: folder of prepared data sets and of the world.

    Raises:
        ConfigError: for any mistake that can be seen before something is started.
    """
    run = find(request.run_file, configs)
    phase = phase_of(run, configs)
    instead = f"./launch.sh {request.server_gpus + request.train_gpus} {run}"
    if request.server_gpus and not phase.trains:
        raise ConfigError(f"{phase.title} holds its students itself; write {instead}")
    if request.launcher == "server" and not phase.has_students:
        raise ConfigError(f"{phase.title} asks no students; write {instead}")
    split = gpus.split(request.server_gpus, request.train_gpus, dry_run=request.dry_run)
    settings = translate(request.settings, phase, groups=groups_of(run, configs))
    making = _Making(request, Command(phase=phase, configs=configs, run=run), settings, split, data)
    return making.plan()


class _Making:
    """One plan while it is made."""

    def __init__(self, request: Request, command: Command, settings: Settings, split: gpus.Split, data: Path) -> None:
        self.request, self.command, self.settings, self.split, self.data = request, command, settings, split, data
        self.phase: Phase = command.phase
        self.steps: list[Step] = []
        self.notes = [split.note] if split.note else []
        if request.server_gpus and not request.train_gpus:
            self.notes.append(_trains_on_the_cpu(request.server_gpus))
        self.overrides = [*self._machine(), *self._words(), *settings.overrides]
        self.adds_world = self._adds_world()
        # Composed once: it takes a second, and what is added below is known.
        self.config: DictConfig = composed(command, self.overrides, world=self.adds_world)
        self.has_world = self.adds_world or bool(value_of(self.config, "launch.world"))
        self.students: dict[str, list[dict[str, Any]]] = {}

    def plan(self) -> Plan:
        """All of it."""
        results = self._results()
        world = self._world(results) if self.has_world else None
        self._dataset()
        self._weights()
        if self.phase.family == "rl":
            self._batch()
            self._find_students(world)
            check_teaching(self.config)
        identity = tuple(self.command.argv(self.overrides, world=self.adds_world)[2:])
        folder = self._folder(results, identity)
        hosted = self._servers(folder)
        argv = self._argv(folder, world)
        return Plan(
            argv=tuple(argv),
            environment=self._environment(),
            folder=folder,
            identity=identity,
            steps=tuple(self.steps),
            check=_check_of(argv) if hosted else None,
            servers=tuple(hosted),
            world=world,
            notes=tuple(self.notes),
        )

    def _argv(self, folder: Path, world: World | None) -> list[str]:
        if not self.phase.trains:
            return self._evaluation(folder, world)
        if FOLDER not in self.settings.keys or self.settings.output_dir or self.settings.results_dir:
            self.overrides.append(f"{FOLDER}={hydra_value(str(folder))}")
        return self.command.argv(self.overrides, world=self.adds_world)

    def _evaluation(self, folder: Path, world: World | None) -> list[str]:
        """Its options name models and files; the first of two overrides of a key is the run file's."""
        told = dict(one.lstrip("+").split("=", 1) for one in self.overrides if "=" in one)
        places = {"teacher": "actor_rollout_ref.model.path", "data": "data.val_files", "train_data": "data.train_files"}
        places["templates"] = "rcl.templates_file"
        files = {
            name: plain_text(key, told[key]) if key in told else str(value_of(self.config, key) or "")
            for name, key in places.items()
        }
        untrained = str(world.folder / "teacher") if world is not None else None
        files["output"] = output_file(folder)
        options = evaluation_options(self.students, self.config, files=files, untrained=untrained)
        base = composed(self.command, self._machine(), run=False)
        return [sys.executable, "-m", self.phase.module, *options, *self._machine(), *changed_keys(self.config, base)]

    def _machine(self) -> list[str]:
        key, ranks = "trainer.n_gpus_per_node", self.request.train_gpus
        if key in self.settings.keys:
            raise ConfigError(f"{key}: the number of GPUs is this script's argument; leave the setting out")
        if not ranks:
            return ["hardware=cpu"]
        return ["hardware=gpu", f"{key}={ranks}"]

    def _words(self) -> list[str]:
        words = [line for word in sorted(self.request.words) for line in WORDS[self.phase.family][word]]
        return [line for line in words if line.partition("=")[0] not in self.settings.keys]

    # What it works on.

    def _adds_world(self) -> bool:
        """Whether this is a run on the embedded world whose run file does not say so."""
        if "world" in chosen_groups(self.command.run, self.command.configs):
            return False
        if self.request.server_gpus or self.request.train_gpus or "data.train_files" in self.settings.keys:
            return False
        if not self.phase.has_world:
            raise ConfigError(f"{self.phase.title} needs rows; write dataset_id_or_path=FOLDER")
        return True

    def _world(self, results: Path) -> World:
        world, phase, typed = World.of(self.data), self.phase, self.settings.keys
        if (build := world.build()) is not None:
            self.steps.append(build)
        key = "model.path" if phase.family == "sft" else "actor_rollout_ref.model.path"
        teacher = str(world.folder / "teacher")
        if phase.family == "rl" and value_of(self.config, "launch.warm") and key not in typed:
            places = [results / PRE_RL_MODEL, Path(RESULTS) / "teaching_world" / PRE_RL_MODEL]
            teacher = warm_teacher(places) if not self.request.dry_run else _warm_or_place(places)
        self.overrides += world.places(phase, typed=typed, teacher=teacher)
        if phase.family == "sft" and "data.train_files" not in typed:
            rows = world.warmup_rows()
            self.steps += [rows.step] if rows.step is not None else []
            self.overrides += [f"data.train_files={quoted(rows.train[0])}", f"data.val_files={quoted(rows.val[0])}"]
        return world

    def _dataset(self) -> None:
        """Files of rows, from what the user or the run file names."""
        typed = self.settings.keys
        source = value_of(self.config, "data.source")
        named = list(self.settings.dataset) or ([str(source)] if source else [])
        if self.settings.dataset and named != [source] and not typed & {"data.format", "data"}:
            self._format_of(named)
        if not named or (not self.settings.dataset and (self.has_world or "data.train_files" in typed)):
            return
        rows = rows_of(named, self._preparation())
        self.steps += [rows.step] if rows.step is not None else []
        if self.settings.dataset:
            self.overrides.append(f"++data.source={_one_or_list(named)}")
        self.overrides.append(f"data.train_files={_one_or_list(list(rows.train))}")
        if rows.val and "data.val_files" not in typed:
            self.overrides.append(f"data.val_files={_one_or_list(list(rows.val))}")

    def _format_of(self, named: list[str]) -> None:
        """How another set than the run file's is written: as its format says where it is known, else as custom."""
        from verl.data_preprocessing.reasoning_traces import DATA_CONFIGS

        known = [name for name, one in DATA_CONFIGS.items() if one.source is not None and [one.source.repo] == named]
        form = value_of(self.config, "data.format")
        if form not in known:
            form = known[0] if known else "custom"
            if not all(one.endswith(".parquet") for one in named):
                self.notes.append(
                    f"{named[0]} is read as data.format={form}; write data.format=NAME where its columns are others"
                )
        OmegaConf.update(self.config, "data.format", form, force_add=True)
        self.overrides.append(f"++data.format={form}")

    def _preparation(self) -> Preparation:
        is_warmup = self.phase.rows == "teacher_sft"
        templates = value_of(self.config, "data.templates") if is_warmup else None
        return Preparation(
            rows=self.phase.rows,
            data=self.data,
            data_format=value_of(self.config, "data.format") or "custom",
            kind=value_of(self.config, "data.kind") or "auto",
            tokenizer=value_of(self.config, "data.tokenizer") if is_warmup else None,
            templates=Path(str(templates)).expanduser() if templates else None,
            max_teaching_tokens=value_of(self.config, "data.max_teaching_tokens") if is_warmup else None,
        )

    def _weights(self) -> None:
        """A run's folder that is named as a model stands for its last weights."""
        key = "model.path" if self.phase.family == "sft" else "actor_rollout_ref.model.path"
        typed = value_of(self.config, key)
        if key not in self.settings.keys or typed is None or (found := weights_in(str(typed))) == typed:
            return
        self.overrides = [one for one in self.overrides if not one.startswith(f"{key}=")]
        self.overrides.append(f"{key}={hydra_value(found)}")

    # What depends on the rest of the config.

    def _batch(self) -> None:
        """Prompts of a step, from rollouts of a step."""
        n, rollouts = value_of(self.config, N_ROLLOUTS), self.settings.rollouts_per_step
        says = f"train_batch_size={rollouts}"
        if rollouts is None:
            if N_ROLLOUTS not in self.settings.keys or N_PROMPTS in self.settings.keys:
                self._share_out()
                return
            without = [one for one in self.overrides if not one.lstrip("+").startswith(f"{N_ROLLOUTS}=")]
            default = composed(self.command, without, world=self.adds_world)
            prompts, usual = value_of(default, N_PROMPTS), value_of(default, N_ROLLOUTS)
            if prompts is None:
                return
            rollouts = prompts * usual
            says = f"the run file's {rollouts} rollouts of a step"
        if rollouts % n:
            fitting = max(n, rollouts // n * n)
            raise ConfigError(
                f"{says} cannot be divided among prompts with num_generations={n} each; write "
                f"train_batch_size={fitting}, a multiple of it"
            )
        self.overrides.append(f"{N_PROMPTS}={rollouts // n}")

    def _share_out(self) -> None:
        """The run file's prompts, or about as many, so that their rollouts can be divided among the GPUs."""
        n, prompts = value_of(self.config, N_ROLLOUTS), value_of(self.config, N_PROMPTS)
        ranks = self.request.train_gpus * int(value_of(self.config, "trainer.nnodes") or 1)
        if not ranks or not prompts or N_PROMPTS in self.settings.keys:
            return
        step = prompts_that_split(ranks, n)
        if prompts % step:
            fitting = max(step, round(prompts / step) * step)
            self.notes.append(
                f"{fitting} prompts a step and not {prompts}: {prompts} x {n} rollouts cannot be shared by {ranks} GPUs"
            )
            self.overrides.append(f"{N_PROMPTS}={fitting}")

    def _find_students(self, world: World | None) -> None:
        """The students that the run will have, and how it is told if that is not in its config yet."""
        typed = self.settings.keys
        self.students = students_of(self.config, without=("rcl.students",) if self.settings.students else ())
        if world is not None:
            self.students |= {key: value for key, value in world.students().items() if key not in typed}
        if self.settings.students:
            first = next(iter(self.students["rcl.students"]), {})
            self.students["rcl.students"] = [{**first, "model": weights_in(one)} for one in self.settings.students]
        elif world is None:
            return
        if not self.split.servers:
            chosen = {
                key: value for key, value in self.students.items() if value and (self._chose(key) or key not in typed)
            }
            self.overrides += [f"{key}={hydra_value(value)}" for key, value in chosen.items()]

    def _chose(self, key: str) -> bool:
        """Whether the students of a node are those of `student_model`."""
        return key == NODES[0] and bool(self.settings.students)

    def _results(self) -> Path:
        typed = self.settings.results_dir
        if typed is not None:
            return Path(typed).expanduser()
        return Path(RESULTS) / "teaching_world" if self.has_world else Path(RESULTS)

    def _folder(self, results: Path, identity: tuple[str, ...]) -> Path:
        if self.settings.output_dir is not None:
            return Path(self.settings.output_dir).expanduser()
        if FOLDER in self.settings.keys and self.settings.results_dir is None:
            return Path(str(value_of(self.config, FOLDER))).expanduser()
        name = str(value_of(self.config, "trainer.experiment_name"))
        if self.phase.family == "sft":
            return results / name
        return run_folder(results / name, identity)

    def _servers(self, folder: Path) -> list[Options]:
        if not self.split.servers:
            return []
        node: dict[str, Any] = value_of(self.config, "launch.servers") or {}
        mapping, chooses = (folder / "servers" / "students.json").absolute(), node.get("backend", "auto") == "auto"
        hosting = hosting_of(
            node,
            mapping=mapping,
            backend=usable_backend() if chooses and not self.request.dry_run else "auto",
            seed=int(value_of(self.config, "data.seed") or 0),
        )
        hosted = servers(self.students, self.split.servers, hosting)
        self.overrides = [one for one in self.overrides if not one.lstrip("+").startswith(STUDENT_NODES)]
        self.overrides += told(self.students, mapping)
        return hosted

    def _environment(self) -> dict[str, str]:
        variables = {}
        if self.split.training:
            variables[gpus.VARIABLE] = ",".join(self.split.training)
        no_gpu = not self.request.server_gpus and not self.request.train_gpus
        if self.request.launcher == "server" and self.phase.trains and no_gpu and not os.environ.get(AT_END):
            told = [word for name, one in chosen(self.config).items() for word in (f"--{name}", one)]
            variables[AT_END] = shlex.join([sys.executable, "-m", EVALUATION, *told])
        return variables


def _check_of(argv: list[str]) -> Step:
    """The checks of a run, by its command."""
    program, _, _, *arguments = argv
    return Step(title="checks the run, before its servers start", argv=(program, "-m", CHECKER, *arguments))


def _trains_on_the_cpu(servers: int) -> str:
    """What a person should know who gave all GPUs to the servers."""
    gpus_there = "1 GPU" if servers == 1 else f"{servers} GPUs"
    some = f"{servers - servers // 2} {servers // 2}" if servers > 1 else "0 1"
    return (
        f"the teacher trains on the CPU (N_TRAIN=0), beside {gpus_there} for its students; write N_VLLM N_TRAIN={some} "
        "to train it on a GPU"
    )


def _warm_or_place(places: list[Path]) -> str:
    """For a command that is only shown: where the warmed-up teacher is, or will be."""
    try:
        return warm_teacher(places)
    except ConfigError:
        return str(places[0])


def _one_or_list(names: list[str]) -> str:
    return hydra_value(names[0] if len(names) == 1 else names)
