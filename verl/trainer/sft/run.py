"""From a composed config to a trained model: checks, run folder, ranks, and the folder made a model's.

Decision: a run folder is that of any other run (`verl.trainer.run.folder`), so that the same command goes on with an
unfinished run, and what reads run folders reads this one. When the run has ended it is itself what
`actor_rollout_ref.model.path` takes.

    >>> train(compose("teacher_sft_trainer", overrides, hardware="sft_hardware"))
"""

import functools
import os
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from verl.trainer.run import loggers
from verl.trainer.run.checkpoints import latest_step
from verl.trainer.run.console import Console
from verl.trainer.run.ending import RunFailed, caught, how_to_go_on, tell
from verl.trainer.run.folder import RunFolder
from verl.trainer.sft.settings import SftSettings, check, check_checkpoint, fill_in

HARDWARE = "sft_hardware"
"""Config group of the machine's settings."""

CONFIG = "teacher_sft_trainer"

HELP = """\
usage: python -m verl.trainer.teacher_sft [--config-name=CONFIG] [flag ...] key=value ...

the keys that a run needs
  model.path=MODEL                          a folder or a hub name
  data.train_files=FILE.parquet             rows of python -m verl.data_preprocessing.teaching_rows

keys that are often wanted
  trainer.default_local_dir=FOLDER          the run folder; once the run has ended, also the model's
  data.val_files=FILE.parquet data.train_batch_size=16 data.max_length=16384
  optim.lr=1e-5 trainer.total_epochs=10 trainer.total_training_steps=N
  trainer.n_gpus_per_node=N trainer.logger=[wandb]
  engine.param_offload=true engine.optimizer_offload=true

config                {config}; --config-name names another one

flags
  --config-dir FOLDER   YAML files of your own, for --config-name
  --cfg job             all keys with their values, verl's too
  --hydra-help          Hydra's other flags
  hardware=cpu|gpu      settings of the machine; found out if it is not given
"""


def train(config: DictConfig) -> Path:
    """Trains, and returns the run folder.

    Raises:
        ConfigError: for a user's mistake, before anything heavy starts where that is possible.
        KeyboardInterrupt: by Ctrl-C or SIGTERM; its text says how to go on.
        RunFailed: for anything else that went wrong.
    """
    # Not at the top: it imports engines, which --help does not need.
    from verl.trainer.preflight import quiet

    with quiet():
        notes = fill_in(config)
        plain: Any = OmegaConf.to_container(config, resolve=True)
        settings = SftSettings.read(plain)
        if settings.device == "cpu":
            os.environ["VERL_PLATFORM"] = "cpu"
        os.environ.setdefault("TQDM_DISABLE", "1")
        check(settings, plain)
    folder = RunFolder.open(plain)
    go_on = functools.partial(how_to_go_on, folder, settings.resume_mode)
    try:
        check_checkpoint(folder.path, settings, folder.resumed_from)
        _settle(config, folder)
        _in_folder(config, settings, folder, notes)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(go_on()) from None
    except RunFailed as failure:
        raise RunFailed(f"{failure}; {go_on()}") from failure
    finally:
        folder.leave()
    return folder.path


def _settle(config: DictConfig, folder: RunFolder) -> None:
    """Where the run stands and where it goes on."""
    with open_dict(config):
        config.trainer.default_local_dir = str(folder.path)
        if folder.resumed_from:
            config.trainer.resume_mode = "resume_path"
            config.trainer.resume_from_path = str(folder.path / f"global_step_{folder.resumed_from}")
        elif config.trainer.resume_mode != "resume_path":
            config.trainer.resume_mode = "disable"
        # Upstream leaves null keys of a model's config to the model, but not within what overrides it.
        OmegaConf.resolve(config)


def _in_folder(config: DictConfig, settings: SftSettings, folder: RunFolder, notes: list[str]) -> None:
    log = folder.path / "logs" / "driver.log"
    failed: BaseException | None = None
    with Console.capture(log, settings.console) as console:
        resumes = {None: "", 0: "  (unfinished, without a checkpoint: starts again)"}
        console.line(
            f"run folder  {folder.path}"
            + resumes.get(folder.resumed_from, f"  (resumes at step {folder.resumed_from})")
        )
        many = settings.ranks > 1
        where = f"GPU{'s' * many}" if settings.device == "cuda" else f"process{'es' * many} on the CPU"
        console.line(f"trains      {settings.model} on {settings.ranks} {where}")
        for note in notes:
            console.line(note)
        loggers.prepare_loggers(list(config.trainer.logger), folder.path / "logs", console.line)
        try:
            from verl.trainer.sft.ranks import run_ranks

            plain: Any = OmegaConf.to_container(config, resolve=True)
            run_ranks(plain, ranks=settings.ranks, hear=_Listener(console, folder))
        except BaseException as error:
            failed = caught(error)
        if failed is None:
            _finish(console, folder)
    tell(failed, log)


class _Listener:
    """Writes what the first rank says to the terminal and to `metrics.jsonl`."""

    def __init__(self, console: Console, folder: RunFolder) -> None:
        self._console, self._folder, self._total = console, folder, 0
        self._last: tuple[int, dict[str, Any]] = (0, {})

    def __call__(self, kind: str, content: Any) -> None:
        if kind == "line":
            self._console.line(content)
        elif kind == "begins":
            done, self._total = content
            self._console.start(total=self._total, done=done)
        elif kind == "metrics":
            step, metrics = content
            # A validation is of the step before it.
            self._last = step, {**(self._last[1] if self._last[0] == step else {}), **metrics}
            self._folder.write_metrics(*self._last)
            if "val/loss" in metrics:
                self._console.line(f"{'':>10}  validation loss {metrics['val/loss']:.4f}")
            else:
                self._console.step(step, self._total, metrics, metrics["timing_s/step"])


def _finish(console: Console, folder: RunFolder) -> None:
    """The folder becomes a model's; says where everything lies."""
    from verl.trainer.sft.checkpoints import publish

    step = latest_step(folder.path)
    model = publish(folder.path, step=step)
    folder.finish()
    console.stop()
    for name in ("config.yaml", "metrics.jsonl", "logs"):
        console.line(f"{name:<16}{folder.path / name}")
    console.line(f"{'checkpoint':<16}{folder.path / f'global_step_{step}'}")
    if model is None:
        console.line(
            "no model        checkpoint.save_contents lacks hf_model: my_scripts/merge_fsdp_ckpts.sh makes one"
        )
    else:
        console.line(f"{'model':<16}{model}  (actor_rollout_ref.model.path of the next run)")
