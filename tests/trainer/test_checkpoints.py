"""What lies in a run folder decides: which checkpoint a run resumes at, and which are removed after a save."""

import shutil
from pathlib import Path

import pytest

from tests.trainer.saved import save, saved_steps
from verl.classmate.errors import ConfigError
from verl.trainer.checkpoints import TRACKER, checkpoint_to_resume, latest_step, prune


def test_a_run_resumes_at_the_step_of_the_tracker(tmp_path: Path) -> None:
    assert latest_step(tmp_path) == 0
    save(tmp_path, 20)
    assert latest_step(tmp_path) == 20
    save(tmp_path, 40)
    (tmp_path / TRACKER).write_text("20")
    assert latest_step(tmp_path) == 20, "the tracker, not the largest number"


@pytest.mark.parametrize("lost", ["folder", "actor", "shards", "data.pt", "cut off"])
def test_a_checkpoint_that_is_not_whole_costs_its_steps_and_not_the_run(tmp_path: Path, lost: str) -> None:
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
def test_a_tracker_that_says_nothing_leaves_the_newest_whole_checkpoint(tmp_path: Path, text: str | None) -> None:
    save(tmp_path, 20)
    save(tmp_path, 40)
    (tmp_path / TRACKER).unlink() if text is None else (tmp_path / TRACKER).write_text(text)
    assert latest_step(tmp_path) == 40


def test_a_checkpoint_that_the_tracker_does_not_know_counts_where_its_own_is_gone(tmp_path: Path) -> None:
    """Upstream removes the last but one before it writes the tracker, with `max_actor_ckpt_to_keep=1`."""
    save(tmp_path, 40)
    shutil.rmtree(save(tmp_path, 20) / "actor")
    assert latest_step(tmp_path) == 40


def test_without_its_critic_a_checkpoint_is_not_whole(tmp_path: Path) -> None:
    save(tmp_path, 20, critic=True)
    shutil.rmtree(save(tmp_path, 40, critic=True) / "critic")
    assert latest_step(tmp_path) == 20


def test_a_run_that_has_lost_all_is_refused_and_does_not_begin_again(tmp_path: Path) -> None:
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
        ("run", "is no folder global_step_N"),
        ("run/global_step_40", "is no folder global_step_N"),
        ("run/global_step_60", "has no whole shards"),
    ],
)
def test_what_is_no_checkpoint_is_refused(tmp_path: Path, monkeypatch, written: str | None, said: str) -> None:
    save(tmp_path / "run", 20)
    (tmp_path / "run" / "global_step_60").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=said):
        checkpoint_to_resume(trainer(written))
