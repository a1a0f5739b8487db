"""What lies in a run folder decides: which checkpoint a run resumes at, and which are removed after a save."""

import re
import shutil
from pathlib import Path

import pytest

from tests.trainer.saved import save, saved_steps
from tests.trainer.test_configs import composed
from verl.classmate.errors import ConfigError
from verl.trainer.preflight.settings import check_resume
from verl.trainer.run.checkpoints import TRACKER, check_ranks, checkpoint_to_resume, latest_step, prune, saved_ranks
from verl.trainer.run.choices import Machine


def test_a_run_resumes_at_the_step_of_the_tracker(tmp_path: Path) -> None:
    assert latest_step(tmp_path) == 0
    save(tmp_path, 20)
    assert latest_step(tmp_path) == 20
    save(tmp_path, 40)
    (tmp_path / TRACKER).write_text("20")
    assert latest_step(tmp_path) == 20, "the tracker, not the largest number"


@pytest.mark.parametrize("lost", ["folder", "actor", "shards", "data.pt", "cut off"])
def test_a_checkpoint_in_pieces_costs_its_steps_and_not_the_run(tmp_path: Path, lost: str) -> None:
    save(tmp_path, 20)
    save(tmp_path, 40)
    newest = save(tmp_path, 60)
    if lost == "folder":
        shutil.rmtree(newest)
    elif lost == "actor":
        shutil.rmtree(newest / "actor")
    elif lost == "shards":
        (newest / "actor" / "model_world_size_1_rank_0.pt").unlink()
    elif lost == "data.pt":
        (newest / "data.pt").unlink()
    else:
        shard = newest / "actor" / "optim_world_size_1_rank_0.pt"
        shard.write_bytes(shard.read_bytes()[:-100])
    assert latest_step(tmp_path) == 40


@pytest.mark.parametrize("text", ["", "latest", None])
def test_an_empty_tracker_leaves_the_newest_whole_checkpoint(tmp_path: Path, text: str | None) -> None:
    save(tmp_path, 20)
    save(tmp_path, 40)
    (tmp_path / TRACKER).unlink() if text is None else (tmp_path / TRACKER).write_text(text)
    assert latest_step(tmp_path) == 40


def test_an_untracked_checkpoint_counts_if_the_tracked_is_gone(tmp_path: Path) -> None:
    """Upstream removes the last but one before it writes the tracker, with `max_actor_ckpt_to_keep=1`."""
    save(tmp_path, 40)
    shutil.rmtree(save(tmp_path, 20) / "actor")
    assert latest_step(tmp_path) == 40


def test_without_its_critic_a_checkpoint_is_not_whole(tmp_path: Path) -> None:
    save(tmp_path, 20, critic=True)
    shutil.rmtree(save(tmp_path, 40, critic=True) / "critic")
    assert latest_step(tmp_path) == 20


def test_a_run_that_lost_all_is_refused_and_not_begun_again(tmp_path: Path) -> None:
    shutil.rmtree(save(tmp_path, 20) / "actor")
    with pytest.raises(
        ConfigError, match=r"has no checkpoint to resume from.*put one back, or start anew with another"
    ):
        latest_step(tmp_path)


def test_a_first_save_that_was_broken_off_is_no_checkpoint(tmp_path: Path) -> None:
    (save(tmp_path, 20) / "data.pt").unlink()
    (tmp_path / TRACKER).unlink()
    assert latest_step(tmp_path) == 0


def test_older_checkpoints_go_as_whole_folders(tmp_path: Path) -> None:
    for step in (20, 40, 60, 80, 100):
        save(tmp_path, step)
    prune(tmp_path, keep=3, keep_critic=3, spared=None)
    assert saved_steps(tmp_path) == [60, 80, 100]


@pytest.mark.parametrize("keep", [None, 0])
def test_none_keeps_all_but_what_is_left_of_removed_ones(tmp_path: Path, keep: int | None) -> None:
    shutil.rmtree(save(tmp_path, 20) / "actor")
    for step in (40, 60, 80, 100):
        save(tmp_path, step)
    prune(tmp_path, keep=keep, keep_critic=keep, spared=None)
    assert saved_steps(tmp_path) == [40, 60, 80, 100]


def test_the_checkpoint_that_the_user_resumed_from_stays(tmp_path: Path) -> None:
    spared = save(tmp_path, 20)
    for step in (40, 60, 80):
        save(tmp_path, step)
    prune(tmp_path, keep=1, keep_critic=1, spared=spared)
    assert saved_steps(tmp_path) == [20, 80]


def test_fewer_critics_may_be_kept_than_policies(tmp_path: Path) -> None:
    folders = [save(tmp_path, step, critic=True) for step in (20, 40, 60)]
    prune(tmp_path, keep=2, keep_critic=1, spared=None)
    assert saved_steps(tmp_path) == [40, 60]
    assert [(folder / "critic").is_dir() for folder in folders[1:]] == [False, True]


def trainer(path: object, mode: str = "resume_path") -> dict:
    return {"resume_mode": mode, "resume_from_path": path}


def test_a_named_checkpoint_is_found_however_its_path_is_written(tmp_path: Path, monkeypatch) -> None:
    folder = save(tmp_path / "run", 20)
    (tmp_path / "good").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    for written in (folder, f"{folder}/", "run/global_step_20", "good"):
        assert checkpoint_to_resume(trainer(written)) == folder
    assert checkpoint_to_resume(trainer(folder, "auto")) is None


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (None, "needs trainer.resume_from_path=RUN/global_step_N"),
        ("", "needs trainer.resume_from_path=RUN/global_step_N"),
        ("run", "is not a folder global_step_N"),
        ("run/global_step_40", "is not a folder global_step_N"),
        ("run/global_step_60", "has no whole shards"),
    ],
)
def test_what_is_no_checkpoint_is_refused(tmp_path: Path, monkeypatch, written: str | None, said: str) -> None:
    save(tmp_path / "run", 20)
    (tmp_path / "run" / "global_step_60").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=said):
        checkpoint_to_resume(trainer(written))


def saved_by(ranks: int, run: Path, *, step: int = 20, merged: bool = True) -> Path:
    """A checkpoint whose shards are those of so many ranks."""
    folder = save(run, step)
    for file in list((folder / "actor").glob("*_world_size_1_rank_0.pt")) if ranks > 1 else ():
        for rank in range(ranks):
            shutil.copy(file, file.with_name(file.name.replace("size_1_rank_0", f"size_{ranks}_rank_{rank}")))
        file.unlink()
    if merged:
        (folder / "actor" / "huggingface").mkdir()
        (folder / "actor" / "huggingface" / "model.safetensors").touch()
    return folder


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8, 12])
@pytest.mark.parametrize(("gpus", "nodes"), [(1, 1), (2, 1), (3, 1), (4, 1), (8, 1), (4, 2), (4, 3), (1, 4)])
def test_a_checkpoint_of_other_ranks_is_refused_with_a_number(
    tmp_path: Path, ranks: int, gpus: int, nodes: int
) -> None:
    """It was a FileNotFoundError in a worker, after all models had loaded."""
    checkpoint = saved_by(ranks, tmp_path)
    assert saved_ranks(checkpoint) == ranks
    if gpus * nodes == ranks:
        check_ranks(checkpoint, gpus_per_node=gpus, nodes=nodes)
        return
    said = f"was saved by {ranks} ranks, but this run has {gpus * nodes}; write"
    with pytest.raises(ConfigError, match=said) as refused:
        check_ranks(checkpoint, gpus_per_node=gpus, nodes=nodes)
    message = str(refused.value)
    fitting = int(re.search(r"n_gpus_per_node=(\d+)", message)[1])  # type: ignore[index]
    fitting_nodes = re.search(r"nnodes=(\d+)", message)
    assert fitting * (int(fitting_nodes[1]) if fitting_nodes else nodes) == ranks
    assert f"actor_rollout_ref.model.path={checkpoint}/actor/huggingface" in message


def test_weights_alone_are_offered_only_where_they_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        check_ranks(saved_by(2, tmp_path, merged=False), gpus_per_node=1, nodes=1)
    assert "model.path" not in str(refused.value)


def test_a_start_refuses_other_ranks_whichever_way_it_resumes(tmp_path: Path) -> None:
    checkpoint = saved_by(2, tmp_path / "run")
    named = {"resume_mode": "resume_path", "resume_from_path": str(checkpoint), "default_local_dir": None}
    own = {"resume_mode": "auto", "resume_from_path": None, "default_local_dir": str(tmp_path / "run")}
    for way in (named, own):
        check_resume({"trainer": way | {"n_gpus_per_node": 2, "nnodes": 1}})
        with pytest.raises(ConfigError, match=r"by 2 ranks, but this run has 4; write trainer\.n_gpus_per_node=2"):
            check_resume({"trainer": way | {"n_gpus_per_node": 4, "nnodes": 1}})
    fresh = {"resume_mode": "disable", "resume_from_path": None, "default_local_dir": str(tmp_path / "run")}
    check_resume({"trainer": fresh | {"n_gpus_per_node": 4, "nnodes": 1}})


def test_gpus_that_nobody_typed_are_those_of_the_checkpoint(tmp_path: Path) -> None:
    checkpoint = saved_by(2, tmp_path / "run")
    resume = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={checkpoint}"]
    there = Machine(gpus=8, gpu_gib=79.2)
    config = composed("classmate_cot_ppo_trainer", "gpu", *resume, machine=there)
    assert config.trainer.n_gpus_per_node == 2
    config = composed("classmate_cot_ppo_trainer", "gpu", f"trainer.default_local_dir={tmp_path}/run", machine=there)
    assert config.trainer.n_gpus_per_node == 2
    for way in (resume, [f"trainer.default_local_dir={tmp_path}/run"]):
        config = composed("classmate_cot_ppo_trainer", "cpu", *way)
        assert config.trainer.n_gpus_per_node == config.ray_kwargs.ray_init.num_gpus == 2
    assert composed("classmate_cot_ppo_trainer", "cpu").trainer.n_gpus_per_node == 1
    config = composed("classmate_cot_ppo_trainer", "gpu", *resume, machine=Machine(gpus=1, gpu_gib=79.2))
    assert config.trainer.n_gpus_per_node == 1, "there are no two; the start refuses in one line"
