"""TRL's newest GRPOTrainer: an environment of its own, and the command that trains in it.

One decision: it shares nothing with this project's environment, which a new TRL would break, but the version of torch.
"""

import json
import subprocess
import venv
from collections.abc import Callable
from pathlib import Path

from scripts.bench.compare import ours
from scripts.bench.compare.arms import Arm
from scripts.bench.compare.start import Job, Start
from scripts.bench.compare.workload import ANSWERS, HELPER_TOKENS, MICRO_ROWS, PROMPTS

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "trl.txt"

VERSIONS = "import json; from importlib.metadata import version as v; print(json.dumps({p: v(p) for p in %r}))"


def make_environment(folder: Path, say: Callable[[str], None]) -> Path:
    """The interpreter of an environment with `trl.txt` in it, which is made where there is none yet.

    Raises:
        RuntimeError: pip failed; its last line.
    """
    python, done = folder / "bin" / "python", folder / "installed.txt"
    if done.exists() and done.read_text() == REQUIREMENTS.read_text():
        return python
    say(f"installing TRL into {folder} (once)")
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(REQUIREMENTS)]
    installed = subprocess.run(pip, capture_output=True, text=True)
    if installed.returncode:
        raise RuntimeError(f"pip cannot install {REQUIREMENTS.name}: {installed.stderr.strip().splitlines()[-1]}")
    done.write_text(REQUIREMENTS.read_text())
    return python


def versions(python: Path) -> dict[str, str]:
    """Of what decides about speed."""
    command = [str(python), "-c", VERSIONS % ["trl", "transformers", "torch"]]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def start(arm: Arm, job: Job, python: Path) -> Start:
    """The command of one run."""
    urls = json.loads(job.mapping.read_text()) if arm.stub else {}
    helpers = [
        {"folder": str(path), "url": f"http://127.0.0.1:{urls[str(path)]['port']}" if arm.stub else None}
        for path in job.workload.helpers[: arm.helpers]
    ]
    spec = {
        "policy": str(job.workload.policy),
        "helpers": helpers,
        "one_by_one": arm.how == "row by row",
        "train_file": str(job.workload.train_file),
        "lengths_file": str(job.workload.lengths_file) if job.lengths == "real" else None,
        "reward_file": str(HERE / "reward.py"),
        "steps_file": str(job.steps_file),
        "output": str(job.folder / "output"),
        "steps": job.steps,
        "prompts": PROMPTS,
        "answers": ANSWERS,
        "micro_rows": MICRO_ROWS,
        "limit": job.limit,
        "helper_tokens": HELPER_TOKENS,
        "sampling": ours.HELPER_SAMPLING,
        "keep": ours.KEEP,
        "lr": ours.LR,
    }
    file = job.folder / "spec.json"
    file.write_text(json.dumps(spec, indent=2))
    # -P and no path of ours: this folder holds names that are packages too.
    return Start(command=[str(python), "-P", str(HERE / "trl_train.py"), str(file)], environment={"PYTHONPATH": ""})
