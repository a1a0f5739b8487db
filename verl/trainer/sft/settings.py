"""What supervised training takes out of its config, checked before anything heavy starts.

One decision: the typed view holds what our code reads; everything else stays in upstream's config and is upstream's.

    >>> settings = SftSettings.read(plain_config)
    >>> settings.rows_of_rank
    4
"""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from verl.classmate.errors import ConfigError
from verl.classmate.typed import PlainNode, require
from verl.trainer.run.checkpoints import check_ranks, latest_step, saved_ranks, step_folders

_COUNTS = ("train_batch_size", "max_length", "max_token_len_per_gpu")


@dataclass(frozen=True, kw_only=True)
class SftSettings:
    """A run of supervised training."""

    model: str | None
    """What is trained."""
    train_files: tuple[str, ...]
    """Parquet files."""
    val_files: tuple[str, ...]
    """Likewise; empty where nothing is validated."""
    batch: int
    """Rows of a step."""
    ranks: int
    """Processes, one a GPU."""
    device: str
    """cpu or cuda."""
    console: str
    """The terminal's output."""
    resume_mode: str
    """As the user wrote it."""

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> "SftSettings":
        """The typed view of a resolved config in which nothing is left open.

        Raises:
            ConfigError: a value that is not possible.
        """
        node = PlainNode(plain)
        data, trainer, optim = node["data"], node["trainer"], node["optim"]
        for name in _COUNTS:
            _check_count(f"data.{name}", data[name])
        _check_count("trainer.total_epochs", trainer["total_epochs"])
        _check_count("trainer.n_gpus_per_node", trainer["n_gpus_per_node"])
        if trainer["total_training_steps"] is not None:
            _check_count("trainer.total_training_steps", trainer["total_training_steps"])
        for name in ("save_freq", "test_freq"):
            value = trainer[name]
            is_possible = value in ("after_each_epoch", -1) or (type(value) is int and value >= 1)
            require(is_possible, f"trainer.{name}: {value!r} is not possible; write after_each_epoch, N steps, or -1")
        rate = optim["lr"]
        require(isinstance(rate, int | float) and rate > 0, f"optim.lr: {rate!r} learns nothing; write 1e-5")
        require(
            bool(data["use_dynamic_bsz"]),
            "data.use_dynamic_bsz=false: rows are put together by tokens here; write data.max_token_len_per_gpu=N",
        )
        require(
            data["max_token_len_per_gpu"] >= data["max_length"],
            f"data.max_token_len_per_gpu={data['max_token_len_per_gpu']} is less than one row of "
            f"data.max_length={data['max_length']}; raise the one or lower the other",
        )
        require(
            trainer["nnodes"] == 1, f"trainer.nnodes={trainer['nnodes']}: supervised training runs on one node; write 1"
        )
        settings = cls(
            model=node["model"]["path"],
            train_files=_files(data["train_files"]),
            val_files=_files(data["val_files"]),
            batch=data["train_batch_size"],
            ranks=trainer["n_gpus_per_node"],
            device=trainer["device"],
            console=trainer["console"],
            resume_mode=trainer["resume_mode"],
        )
        require(
            settings.batch % settings.ranks == 0,
            f"data.train_batch_size={settings.batch} cannot be divided among {settings.ranks} GPUs; write "
            f"data.train_batch_size={-(-settings.batch // settings.ranks) * settings.ranks}",
        )
        return settings


def _check_count(key: str, value: Any) -> None:
    require(type(value) is int and value >= 1, f"{key}: {value!r} is no count; write 1 or more")


def _files(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())


def fill_in(config: DictConfig) -> list[str]:
    """Gives keys that nobody set their values, in place; returns lines for a person.

    Args:
        config: composed from `teacher_sft_trainer.yaml`.
    """
    notes: list[str] = []
    with open_dict(config):
        trainer, model = config.trainer, config.model
        if trainer.n_gpus_per_node is None:
            trainer.n_gpus_per_node = _ranks_before(config) or _gpus(trainer.device)
        if isinstance(trainer.logger, str):
            trainer.logger = [trainer.logger]
        # Upstream's console logger prints every metric of a step; ours is the terminal.
        trainer.logger = [name for name in trainer.logger or () if name != "console"]
        has_flash = importlib.util.find_spec("flash_attn") is not None
        if model.use_remove_padding is None:
            model.use_remove_padding = has_flash
        if model.override_config.get("attn_implementation") is None:
            model.override_config.attn_implementation = "flash_attention_2" if has_flash else "sdpa"
            if not has_flash:
                notes.append("attention   sdpa, since flash-attn is not installed")
        if not config.data.val_files:
            trainer.test_freq = -1
    return notes


def _ranks_before(config: DictConfig) -> int | None:
    """Processes that saved the checkpoint which this start goes on from; None for a new run."""
    named = OmegaConf.select(config, "trainer.default_local_dir")
    if config.trainer.resume_mode != "auto" or not named or not (folder := Path(named).expanduser()).is_dir():
        return None
    step = latest_step(folder)
    return saved_ranks(step_folders(folder)[step]) if step else None


def _gpus(device: str) -> int:
    import torch

    return torch.cuda.device_count() if device == "cuda" else 1


def check(settings: SftSettings, plain: Mapping[str, Any]) -> None:
    """What would fail deep inside a run, told before it begins.

    Raises:
        ConfigError: naming the key and what to write.
    """
    import torch

    from verl.trainer.preflight.models import check_model
    from verl.trainer.run.loggers import check_loggers

    check_model("model.path", settings.model)
    if not settings.train_files:
        raise ConfigError("data.train_files is not set; write data.train_files=FILE.parquet, rows of teaching_rows")
    rows = _rows("data.train_files", settings.train_files)
    if rows < settings.batch:
        raise ConfigError(
            f"data.train_files holds {rows} rows, fewer than data.train_batch_size={settings.batch}; write "
            f"data.train_batch_size={max(settings.ranks, rows // settings.ranks * settings.ranks)} or give more rows"
        )
    if settings.val_files and _rows("data.val_files", settings.val_files) < settings.ranks:
        raise ConfigError(f"data.val_files holds fewer rows than there are GPUs ({settings.ranks}); leave it out")
    check_loggers(plain["trainer"]["logger"])
    if settings.device == "cuda" and settings.ranks > (visible := torch.cuda.device_count()):
        raise ConfigError(
            f"trainer.n_gpus_per_node={settings.ranks}, but {visible} GPUs are visible; write that, or hardware=cpu"
        )


def check_checkpoint(folder: Path, settings: SftSettings, step: int | None) -> None:
    """As many processes read a checkpoint as have written it.

    Raises:
        ConfigError: with the number that fits.
    """
    if step:
        check_ranks(step_folders(folder)[step], gpus_per_node=settings.ranks, nodes=1, model_key="model.path")


def _rows(key: str, files: tuple[str, ...]) -> int:
    """Rows of parquet files with `messages`."""
    import pyarrow.parquet as pq

    total = 0
    for file in files:
        path = Path(file).expanduser()
        if not path.is_file():
            raise ConfigError(
                f"{key}: {file} does not exist; make it by python -m verl.data_preprocessing.teaching_rows, or name "
                "another parquet file"
            )
        try:
            parquet = pq.ParquetFile(path)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{key}: {file} is no parquet file ({type(error).__name__}); name one") from error
        if "messages" not in parquet.schema_arrow.names:
            raise ConfigError(
                f"{key}: {file} has no column messages; prepare it by python -m verl.data_preprocessing.teaching_rows "
                "--rows teacher_sft"
            )
        total += parquet.metadata.num_rows
    return total
