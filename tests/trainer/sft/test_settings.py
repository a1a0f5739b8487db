"""The config of supervised training: its defaults are the documented ones, and a mistake is one line."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from tests.trainer.sft.small import make_small
from verl.classmate.errors import ConfigError
from verl.data_preprocessing.common import write_parquet
from verl.trainer.run.command_line import compose, prepare_overrides
from verl.trainer.sft import run
from verl.trainer.sft.checkpoints import publish
from verl.trainer.sft.settings import SftSettings, check, fill_in


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return make_small(tmp_path_factory.mktemp("small"))


def composed(*overrides: str):
    arguments = prepare_overrides(list(overrides), hardware=run.HARDWARE)
    config = compose(run.CONFIG, arguments, hardware=run.HARDWARE)
    assert config is not None
    fill_in(config)
    return config


def checked(*overrides: str) -> SftSettings:
    plain = OmegaConf.to_container(composed(*overrides), resolve=True)
    settings = SftSettings.read(plain)
    check(settings, plain)
    return settings


@pytest.mark.parametrize("hardware", ["cpu", "gpu"])
def test_the_defaults_are_the_published_ones(hardware: str, small) -> None:
    from verl.utils.config import omega_conf_to_dataclass

    config = composed(f"hardware={hardware}", f"model.path={small.model}", "trainer.n_gpus_per_node=1")
    optim, data = omega_conf_to_dataclass(config.optim), config.data
    assert (optim.lr, optim.lr_scheduler_type, optim.lr_warmup_steps_ratio) == (1e-5, "cosine", 0.05)
    assert (optim.weight_decay, list(optim.betas), optim.clip_grad) == (1e-4, [0.9, 0.95], 1.0)
    assert (data.train_batch_size, data.max_length, config.trainer.total_epochs) == (16, 16384, 10)
    assert data.mask_teacher_answer
    engine = omega_conf_to_dataclass(config.engine)
    assert (engine.strategy, engine.dtype) == ("fsdp2", {"cpu": "float32", "gpu": "bfloat16"}[hardware])
    assert config.trainer.device == {"cpu": "cpu", "gpu": "cuda"}[hardware]
    assert "hf_model" in config.checkpoint.save_contents
    assert omega_conf_to_dataclass(config.model).path == str(small.model)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ((), "model.path is not set"),
        (("model.path=/no/model",), "model.path=/no/model does not exist"),
        (("model.path={model}",), "data.train_files is not set"),
        (("model.path={model}", "data.train_files=none.parquet"), "data.train_files: none.parquet does not exist"),
        (("model.path={model}", "data.train_files={other}"), "has no column messages"),
        (("model.path={model}", "data.train_files={train}", "data.train_batch_size=64"), "32 rows, fewer than"),
        (("data.train_batch_size=5", "trainer.n_gpus_per_node=2"), "cannot be divided among 2 GPUs"),
        (("data.max_length=100", "data.max_token_len_per_gpu=50"), "less than one row"),
        (("data.use_dynamic_bsz=false",), "data.use_dynamic_bsz=false"),
        (("trainer.save_freq=0",), "trainer.save_freq: 0 is not possible"),
        (("trainer.total_training_steps=0",), "trainer.total_training_steps: 0 is no count"),
        (("optim.lr=0",), "optim.lr: 0 learns nothing"),
        (("optim.lr=fast",), "optim.lr: expected a number"),
        (("trainer.nnodes=2",), "trainer.nnodes=2"),
        (("model.path={model}", "data.train_files={train}", "trainer.logger=[paper]"), "trainer.logger: 'paper'"),
        (("data.trian_files=a",), "did you mean data.train_files"),
        (("hardware=tpu",), "tpu"),
    ],
)
def test_a_mistake_is_one_line(overrides: tuple[str, ...], told: str, small, tmp_path: Path) -> None:
    write_parquet([{"text": "a"}], tmp_path / "other.parquet")
    names = {"{model}": small.model, "{train}": small.train_file, "{other}": tmp_path / "other.parquet"}
    typed = list(overrides)
    for name, path in names.items():
        typed = [override.replace(name, str(path)) for override in typed]
    if not any(override.startswith("hardware=") for override in typed):
        typed.append("hardware=cpu")
    with pytest.raises(ConfigError, match=r"^[^\n]+$") as error:
        checked(*typed)
    assert told in str(error.value)


def test_what_is_right_passes(small) -> None:
    settings = checked("hardware=cpu", f"model.path={small.model}", f"data.train_files={small.train_file}")
    assert (settings.ranks, settings.batch, settings.train_files) == (1, 16, (str(small.train_file),))


def test_nothing_is_validated_without_rows_for_it() -> None:
    assert composed("hardware=cpu").trainer.test_freq == -1
    assert composed("hardware=cpu", "data.val_files=v.parquet").trainer.test_freq == "after_each_epoch"


def test_a_model_takes_the_place_of_an_older_one(tmp_path: Path) -> None:
    shards_of = {2: [f"model-0000{part}-of-00002.safetensors" for part in (1, 2)], 4: ["model.safetensors"]}
    for step, shards in shards_of.items():
        saved = tmp_path / f"global_step_{step}" / "actor" / "huggingface"
        saved.mkdir(parents=True)
        for name in (*shards, "config.json"):
            (saved / name).write_text(f"{name} of step {step}")
    (tmp_path / "config.yaml").write_text("the run's")
    publish(tmp_path, step=2)
    assert publish(tmp_path, step=4) == tmp_path
    assert sorted(path.name for path in tmp_path.glob("*.*")) == ["config.json", "config.yaml", "model.safetensors"]
    assert (tmp_path / "config.json").read_text() == "config.json of step 4"
    (tmp_path / "global_step_4" / "actor" / "huggingface" / "model.safetensors").unlink()
    assert publish(tmp_path, step=4) is None
