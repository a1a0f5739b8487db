"""`create_docker.sh`: the image and the container that it makes."""

import re
import shlex
from pathlib import Path

from tests.my_scripts.launching import FOLDER, ROOT, launch, refused


def docker_commands(*arguments: str, cwd: Path, **variables: object) -> list[list[str]]:
    done = launch("create_docker", "--dry-run", *arguments, cwd=cwd, **variables)
    assert done.returncode == 0, done.stderr
    return [shlex.split(line) for line in done.stdout.splitlines()]


def volumes(create: list[str]) -> dict[str, str]:
    pairs = [create[i + 1].rsplit(":", 1) for i, word in enumerate(create) if word == "--volume"]
    return {inside: outside for outside, inside in pairs}


def test_the_container_verl_has_gpus_data_and_models(tmp_path: Path) -> None:
    build, create = docker_commands("--data=d", "--hf-cache", "/models", "--", "--network", "host", cwd=tmp_path)
    assert build == ["docker", "build", "--file", str(FOLDER / "Dockerfile"), "--tag", "classmate-cot-verl", str(ROOT)]
    assert create[:4] == ["docker", "create", "--name", "verl"]
    assert create[create.index("--gpus") + 1] == "all"
    assert "--shm-size" in create
    assert create[-3:] == ["--network", "host", "classmate-cot-verl"]
    recipe = (FOLDER / "Dockerfile").read_text()
    checkout = re.search(r"^WORKDIR (\S+)", recipe, re.MULTILINE)[1]  # type: ignore[index]
    cache = re.search(r"HF_HOME=(\S+)", recipe)[1]  # type: ignore[index]
    assert volumes(create) == {checkout: str(ROOT), f"{checkout}/data": str(tmp_path / "d"), cache: "/models"}
    assert create[create.index("--workdir") + 1] == checkout


def test_folders_of_the_container_may_be_written_from_here(tmp_path: Path) -> None:
    """Docker takes a word without a slash for the name of a volume of its own."""
    _, create = docker_commands("--data=d", "--hf-cache=models", cwd=tmp_path)
    assert set(volumes(create).values()) == {str(ROOT), str(tmp_path / "d"), str(tmp_path / "models")}


def test_where_packages_come_from_is_handed_to_the_build_unseen(tmp_path: Path) -> None:
    build, _ = docker_commands(cwd=tmp_path, PIP_INDEX_URL="https://me:secret@index.invalid")
    assert build[build.index("--build-arg") + 1] == "PIP_INDEX_URL"


def test_the_images_toolkit_is_that_of_the_locked_torch() -> None:
    """flash-attn is compiled in it, against that torch."""
    lock = (ROOT / "requirements" / "gpu.lock").read_text()
    version = re.search(r"^cuda-toolkit==(\d+\.\d+)", lock, re.MULTILINE)[1]  # type: ignore[index]
    assert f"nvidia/cuda:{version}." in (FOLDER / "Dockerfile").read_text()


def stand_in_docker(folder: Path, *, container_exists: bool) -> Path:
    """A `docker` that writes down what it is asked."""
    folder.mkdir()
    program = folder / "docker"
    program.write_text(
        f'#!/bin/sh\n[ "$1" != container ] || exit {int(not container_exists)}\necho "$1" >> "{folder}/asked"\n'
    )
    program.chmod(0o755)
    return folder


def test_the_image_is_built_then_the_container_made(tmp_path: Path) -> None:
    folder = stand_in_docker(tmp_path / "bin", container_exists=False)
    path = f"{folder}:/usr/local/bin:/usr/bin:/bin"
    done = launch("create_docker", "--hf-cache", str(tmp_path / "cache"), cwd=tmp_path, PATH=path)
    assert done.returncode == 0, done.stderr
    assert (folder / "asked").read_text().split() == ["build", "create"]
    assert "docker start verl && docker exec -it verl bash" in done.stdout
    assert (tmp_path / "cache").is_dir(), "docker would make it, as root"


def test_a_container_of_that_name_is_left_alone(tmp_path: Path) -> None:
    folder = stand_in_docker(tmp_path / "bin", container_exists=True)
    line = refused("create_docker", cwd=tmp_path, PATH=f"{folder}:/usr/local/bin:/usr/bin:/bin")
    assert "there is a container verl" in line
    assert not (folder / "asked").exists()
