"""What is named on a command line, and what is a setting."""

from pathlib import Path

from verl.evaluation.arguments import told_apart


def test_a_folder_may_be_called_as_a_setting(tmp_path: Path) -> None:
    run = tmp_path / "lr=1e-5"
    run.mkdir()
    assert told_apart([str(run), "rcl.protocol.max_probe_tokens=0"]) == (
        [str(run)],
        ["rcl.protocol.max_probe_tokens=0"],
    )
    assert told_apart([str(tmp_path / "other=1")]) == ([], [str(tmp_path / "other=1")])
