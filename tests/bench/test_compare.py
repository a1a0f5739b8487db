"""The bench beside other trainers: forced lengths, measuring from outside, a second start, what the table says."""

import asyncio
import json
import statistics
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scripts.bench.compare import hook, ours, passes, plain_verl, report, runner, stub, workload
from scripts.bench.compare.arms import ARMS, Arm, chosen
from scripts.bench.compare.start import Job, Start
from tests.bench.results import result

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> workload.Workload:
    return workload.make_workload(tmp_path_factory.mktemp("workload"), steps=2)


def job_of(made: workload.Workload, folder: Path, lengths: str = "real", steps: int = 5) -> Job:
    return Job(workload=made, lengths=lengths, steps=steps, folder=folder)


class TestArms:
    def test_each_peer_is_there_alone(self) -> None:
        names = [arm.name for arm in ARMS]
        assert len(set(names)) == len(names)
        assert {arm.alone for arm in ARMS} <= set(names)

    def test_patterns_keep_the_order_and_a_wrong_one_is_told(self) -> None:
        assert [arm.name for arm in chosen(["trl/none", "*/none"])][:2] == ["ours/none", "trl/none"]
        with pytest.raises(ValueError, match=r"--arms ours/three: no such arm; there are ours/none, "):
            chosen(["*/none", "ours/three"])


class TestWorkload:
    def test_lengths_are_as_their_distribution_says(self) -> None:
        flat = [length for answers in workload.lengths(2000) for length in answers]
        assert abs(statistics.median(flat) - workload.MEDIAN) <= 2
        assert 0.04 < statistics.mean(length == workload.LIMITS["real"] for length in flat) < 0.065, (
            "one in twenty is cut"
        )
        assert min(flat) >= 1
        assert workload.lengths(2000)[: 3 * workload.PROMPTS] == workload.lengths(3)

    @pytest.mark.parametrize("which", [0, 1, 2])
    def test_no_model_can_end_its_turn(self, made: workload.Workload, which: int) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        folder = (made.policy, *made.helpers)[which]
        tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
        torch.manual_seed(which)
        # Behind anything that it may write, which those tokens are not.
        ordinary = torch.tensor(sorted(set(range(len(tokenizer))) - set(tokenizer.all_special_ids)))
        ids_BL = ordinary[torch.randint(len(ordinary), (16, 200))]
        with torch.no_grad():
            probs_BLV = model(ids_BL).logits.softmax(-1)
        # A run draws less than 100,000 tokens.
        assert probs_BLV[..., tokenizer.all_special_ids].max() < 1e-9
        assert probs_BLV.max() < 0.1, "the others stay random"

    def test_prompts_lie_in_the_order_of_the_lengths(self, made: workload.Workload) -> None:
        import pandas as pd

        rows = pd.read_parquet(made.train_file)
        assert [info["index"] for info in rows["extra_info"]] == list(range(2 * workload.PROMPTS))
        assert json.loads(made.lengths_file.read_text()) == workload.lengths(2)


class TestForcedLengths:
    def test_in_verl_by_a_limit_of_each_row(self, made: workload.Workload, monkeypatch: pytest.MonkeyPatch) -> None:
        class Loop:
            async def run(self, sampling_params: dict[str, Any], **columns: Any) -> dict[str, Any]:
                return sampling_params

        monkeypatch.setenv(hook.LENGTHS_FILE, str(made.lengths_file))
        module: Any = SimpleNamespace(SingleTurnAgentLoop=Loop)
        hook.limit_lengths(module)
        asked = asyncio.run(Loop().run({"top_p": 1.0}, extra_info={"index": 9}, session_id=3))
        assert asked == {"top_p": 1.0, "max_tokens": workload.lengths(2)[9][3]}

    def test_in_trl_by_an_end_that_is_put_in(self, made: workload.Workload) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        from scripts.bench.compare.trl_train import make_end_at

        tokenizer = AutoTokenizer.from_pretrained(made.policy)
        model = AutoModelForCausalLM.from_pretrained(made.policy)
        rows, lengths = 8, workload.lengths(2)
        end_at = make_end_at(lengths, rows, tokenizer.eos_token_id)
        flat = [length for answers in lengths for length in answers]
        for batch in range(3):
            ids = torch.full((rows, 5), 7)
            end_at.begin(5)
            written = model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=workload.LIMITS["real"],
                do_sample=True,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
                logits_processor=[end_at],
            )[:, 5:]
            ended = (written == tokenizer.eos_token_id).int()
            wanted = flat[batch * rows : (batch + 1) * rows]
            # The limit ends a row without an end token as well.
            assert [int(row.argmax()) + 1 if row.any() else written.shape[1] for row in ended] == wanted


class TestCommands:
    @pytest.mark.parametrize("arm", [arm for arm in ARMS if arm.peer == "ours"], ids=lambda arm: arm.name)
    def test_ours_pass_the_checks_of_a_start(self, arm: Arm, made: workload.Workload, tmp_path: Path) -> None:
        from omegaconf import OmegaConf

        from tests.trainer.test_configs import composed
        from verl.classmate.config import RunConfig
        from verl.trainer.run.command_line import prepare_overrides

        config: Any = composed(
            "classmate_cot_ppo_trainer" if arm.helpers else "qwen_ppo_trainer",
            "cpu",
            *prepare_overrides(ours.overrides(arm, job_of(made, tmp_path))),
        )
        container: Any = OmegaConf.to_container(config, resolve=True)
        reward = RunConfig.read(container, trainer_name="classmate_cot" if arm.helpers else "baseline").reward
        assert len(reward.classmates) == arm.helpers
        assert {spec.backend for spec in reward.classmates} <= {arm.engine}
        assert not arm.helpers or reward.classmate_schedule == arm.how

    def test_equal_lengths_need_no_hook(self, made: workload.Workload, tmp_path: Path) -> None:
        environments = {
            lengths: ours.start(ARMS[0], job_of(made, tmp_path, lengths)).environment for lengths in workload.LENGTHS
        }
        assert hook.LENGTHS_FILE not in environments["equal"]
        assert environments["real"][hook.LENGTHS_FILE] == str(made.lengths_file)

    def test_plain_verl_is_the_documented_command(self, made: workload.Workload, tmp_path: Path) -> None:
        (alone,) = chosen(["plain-verl/none"])
        text = plain_verl.start(alone, job_of(made, tmp_path)).command[-1]
        assert text.startswith(plain_verl.documented())
        assert "python -m verl.trainer.main_ppo" in text


class TestStub:
    def test_a_classmates_actor_waits_instead_of_computing(
        self, made: workload.Workload, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from verl.workers.classmates import client, engines
        from verl.workers.rollout.hf_rollout_server.engine import EngineConfig

        monkeypatch.setattr(engines.ClassmateWorker, "generate", None)  # put back afterwards
        hook.play_classmates(engines)
        worker = engines.ClassmateWorker(EngineConfig(model_path=str(made.helpers[1])))

        async def ask() -> list[Any]:
            # As the client asks an engine.
            ask_one = {"prompt_ids": [1, 2], "sampling_params": {"max_tokens": 24, "seed": 1}, "request_id": "a"}
            return await asyncio.gather(*(worker.generate(**ask_one) for _ in range(9)))

        began = time.monotonic()
        outputs = asyncio.run(ask())
        assert time.monotonic() - began >= 3 * workload.STUB_REQUEST_S, "four at a time"
        worker.engine.close()
        replies = [client.reply_of(output, max_tokens=24) for output in outputs]
        assert [(reply.outcome, len(reply.token_ids)) for reply in replies] == [("ok", 24)] * 9
        assert worker.engine.batches == 0

    def test_it_does_as_a_hosted_classmate(self, made: workload.Workload, tmp_path: Path) -> None:
        from verl.trainer.preflight.models import check_server, load_tokenizer
        from verl.workers.classmates.remote import RemoteClassmate

        mapping, models = tmp_path / "mapping.json", [str(path) for path in made.helpers]
        with stub.serving(made.helpers, mapping=mapping):
            for model in models:
                check_server("key", model, load_tokenizer("key", model), 1000, mapping_file=str(mapping))

            async def ask() -> list[Any]:
                classmate = RemoteClassmate(models[0], mapping, timeout_s=60)
                try:
                    params = {"max_tokens": workload.HELPER_TOKENS, "temperature": 0.7}
                    return await asyncio.gather(*(classmate.complete([1, 2, 3], params) for _ in range(9)))
                finally:
                    await classmate.close()

            began = time.monotonic()
            replies = asyncio.run(ask())
            took = time.monotonic() - began
        assert [(reply.outcome, len(reply.token_ids)) for reply in replies] == [("ok", workload.HELPER_TOKENS)] * 9
        assert took >= 3 * workload.STUB_REQUEST_S, "four at a time"


def trainee(folder: Path, body: str) -> Start:
    """A program in place of a training; `end(step)` notes the end of a step."""
    program = textwrap.dedent(
        """
        import json, os, subprocess, sys, time
        def end(step):
            with open("steps.jsonl", "a") as file:
                file.write(json.dumps({"step": step, "s": float(step)}) + chr(10))
        def wait_for(name):
            while not os.path.exists(name):
                time.sleep(0.01)
        """
    )
    (folder / "trainee.py").write_text(program + textwrap.dedent(body))
    return Start(command=[sys.executable, str(folder / "trainee.py")], environment={})


class TestRunner:
    def measured(self, folder: Path, body: str, steps: int = 7) -> dict[str, Any]:
        job = Job(workload=None, lengths="equal", steps=steps, folder=folder)  # type: ignore[arg-type]
        return runner.measure(
            trainee(folder, body), job, warmup=2, counted=steps - 2 - runner.MEMORY_STEPS, say=self.say
        )

    def say(self, text: str) -> None:
        """The trainee waits until a step has been seen, so that none is passed over."""
        (self.folder / f"seen_{text.split('/')[0].split()[-1]}").touch()

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def test_steps_computing_and_memory_of_all_processes(self, tmp_path: Path) -> None:
        worker = "import time, os\nwhile time.process_time() < 0.5: pass\nopen('burnt', 'w')\ntime.sleep(600)"
        body = f"""
        kept = bytearray(50 << 20)
        for step in range(1, 8):
            if step == 3:
                subprocess.Popen([sys.executable, "-c", {worker!r}], start_new_session=True)
                wait_for("burnt")
            end(step)
            wait_for(f"seen_{{step}}")
        """
        measured = self.measured(tmp_path, body)
        assert measured["step_s"] == [1.0, 1.0, 1.0], "steps 3, 4 and 5: two are dropped, two are for memory"
        assert measured["median_s"] == 1.0
        assert measured["cpu_s"] * 3 > 0.4, "a child in a session of its own counts"
        left = subprocess.run(["pgrep", "-f", "process_time.*burnt"], capture_output=True, text=True).stdout.split()
        assert not [pid for pid in left if str(tmp_path) in self.folder_of(pid)], "nothing is left behind"

    @staticmethod
    def folder_of(pid: str) -> str:
        try:
            return str(Path(f"/proc/{pid}/cwd").readlink())
        except OSError:
            return ""

    def test_an_error_is_told_in_one_line(self, tmp_path: Path) -> None:
        with pytest.raises(runner.RunFailed, match=r"^ValueError: of the run \(exit code 1, 1 steps; see .*\)$"):
            self.measured(tmp_path, "end(1)\nprint('an error is near')\nraise ValueError('of the run')")

    def test_fewer_steps_are_no_result(self, tmp_path: Path) -> None:
        with pytest.raises(runner.RunFailed, match=r"bye \(exit code 0, 6 steps"):
            self.measured(tmp_path, "for step in range(1, 7): end(step)\nprint('bye')")


class TestPasses:
    @pytest.fixture
    def ran(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
        ran: list[tuple[str, str]] = []

        def run(arm: Arm, job: Job, *_: Any) -> dict[str, Any]:
            ran.append((arm.name, job.lengths))
            if arm.name in self.broken:
                raise runner.RunFailed("it broke")
            return {
                key: value for key, value in result(arm.name, 2.0).items() if key not in ("arm", "repeat", "lengths")
            }

        monkeypatch.setattr(passes, "_run", run)
        monkeypatch.setattr(workload, "make_workload", lambda *_: None)
        self.broken = {"trl/none"}
        return ran

    def start(self, out: Path, counted: int = 3, repeats: int = 2) -> list[dict[str, Any]]:
        arms = chosen(["*/none"])[:2]
        return passes.run_passes(arms, ["equal"], repeats=repeats, counted=counted, out=out, cache=out)

    def test_a_second_start_goes_on(self, tmp_path: Path, ran: list[tuple[str, str]]) -> None:
        self.start(tmp_path)
        assert ran == [("ours/none", "equal"), ("trl/none", "equal")] * 2, "in turn, not one arm after the other"
        ran.clear()
        self.broken.clear()
        results = self.start(tmp_path)
        assert ran == [("trl/none", "equal")] * 2, "only what had failed"
        assert report.summary(chosen(["trl/none"]), "equal", results)[0]["runs"] == 2
        ran.clear()
        self.start(tmp_path, repeats=3)
        assert len(ran) == 2, "one more pass"

    @pytest.mark.parametrize("torn", [b'{"arm": "ours/no', b"\x00\x00\x00", b"\n\n", b"null", b'{"arm": "ours/none"}'])
    def test_a_line_that_was_cut_off_costs_nothing_but_itself(
        self, tmp_path: Path, ran: list[tuple[str, str]], torn: bytes
    ) -> None:
        self.broken.clear()
        self.start(tmp_path, repeats=1)
        with (tmp_path / "results.jsonl").open("ab") as file:
            file.write(torn)
        ran.clear()
        results = self.start(tmp_path)
        assert ran == [("ours/none", "equal"), ("trl/none", "equal")], "the second pass"
        assert len(results) == 4
        assert len(self.start(tmp_path)) == 4

    @pytest.mark.parametrize("error", [ValueError("no number"), KeyError("port"), AssertionError("odd")])
    def test_whatever_an_arm_raises_the_others_run(
        self, tmp_path: Path, ran: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch, error: Exception
    ) -> None:
        def run(arm: Arm, job: Job, *rest: Any, played: Any = passes._run) -> dict[str, Any]:
            if arm.name == "ours/none":
                raise error
            self.broken.clear()
            return played(arm, job, *rest)

        monkeypatch.setattr(passes, "_run", run)
        broken, whole = self.start(tmp_path, repeats=1)
        assert broken["error"] == f"{type(error).__name__}: {error}"
        assert whole["median_s"] == 2.0

    def test_other_conditions_are_other_runs(self, tmp_path: Path, ran: list[tuple[str, str]]) -> None:
        self.start(tmp_path)
        assert {line["conditions"]["steps"] for line in self.start(tmp_path, counted=4)} == {4}
        assert len(ran) == 8

    def test_what_a_failed_run_has_left_stays(self, tmp_path: Path, ran: list[tuple[str, str]]) -> None:
        self.start(tmp_path, repeats=1)
        assert [path.name for path in (tmp_path / "runs").iterdir()] == ["trl_none_equal_0"]


@pytest.mark.long
def test_real_runs_have_the_forced_lengths(tmp_path: Path) -> None:
    """Upstream's trainer, and ours with a stub that reads: the command, its numbers, and what the runs have written."""
    arms = ["ours/stub/streamed", "plain-verl/none"]
    command = [sys.executable, "-m", "scripts.bench.compare", "--arms", *arms, "--lengths", "real", "--steps", "3"]
    done = subprocess.run(
        [*command, "--repeats", "1", "--keep", "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    entries = {entry["arm"]: entry for entry in json.loads(done.stdout.splitlines()[-1])["real"]["arms"]}
    assert sorted(entries) == sorted(arms)
    for entry in entries.values():
        assert entry["median_s"] > 0
        assert entry["cpu_s"] > 0
        assert entry["pss_mib"] > 500

    lengths = workload.lengths(steps=5)
    rollouts = tmp_path / "runs" / "ours_stub_streamed_real_0" / "run" / "rollouts"
    for step in range(1, 6):
        rows = list(map(json.loads, (rollouts / f"step_{step}.jsonl").open()))
        of_step = lengths[(step - 1) * workload.PROMPTS : step * workload.PROMPTS]
        assert sorted(row["response_tokens"] for row in rows) == sorted(n for answers in of_step for n in answers)
        samples = [sample for row in rows for classmate in row["classmates"] for sample in classmate["samples"]]
        assert [(sample["outcome"], sample["tokens"]) for sample in samples] == [("ok", workload.HELPER_TOKENS)] * len(
            rows
        )
    metrics = (tmp_path / "runs" / "plain-verl_none_real_0" / "metrics.jsonl").read_text().splitlines()
    for step, line in enumerate(map(json.loads, metrics)):
        of_step = lengths[step * workload.PROMPTS : (step + 1) * workload.PROMPTS]
        mean = statistics.fmean(n for answers in of_step for n in answers)
        assert line["data"]["response_length/mean"] == pytest.approx(mean)
