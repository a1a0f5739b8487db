"""Settings by variables and options, and where the service must not start."""

import runpy

import pytest

from verl.code_utils import api
from verl.code_utils.sandbox import Protection, Sandbox, SandboxError, SandboxSettings

PLAIN = Protection(namespaces=False, own_user=False)


def test_settings_come_from_variables() -> None:
    settings = SandboxSettings.from_environment({"CODE_SANDBOX_MEMORY_MB": "128", "CODE_SANDBOX_CONCURRENCY": "3"})
    assert (settings.memory_mb, settings.concurrency, settings.queue) == (128, 3, SandboxSettings().queue)
    assert SandboxSettings().concurrency >= 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("MEMORY_MB", "much"), ("MEMORY_MB", "0"), ("QUEUE", "-1"), ("DISK_MB", "8"), ("ALLOW_WEAK", "2"), ("TESTS", "")],
)
@pytest.mark.filterwarnings("ignore:.*sys.modules:RuntimeWarning")
def test_a_wrong_setting_is_one_line(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"CODE_SANDBOX_{name}", value)
    with pytest.raises(SystemExit, match=rf"(?i)^error: .*{name}.*; write") as ended:
        api.main([])
    assert "\n" not in str(ended.value)
    with pytest.raises(SystemExit) as imported:
        runpy.run_module("verl.code_utils.api", run_name="served")
    assert str(imported.value) == str(ended.value)


def test_options_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        api.main(["--help"])
    assert ended.value.code == 0
    listed = capsys.readouterr().out
    assert "127.0.0.1" in listed
    assert all(f"--{name}" in listed for name in ("port", "concurrency", "memory-mb", "queue", "allow-weak"))


def test_without_protection_of_files_it_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it was told to: programs would have the service's own rights."""

    def unprotected(*_: object) -> tuple[str, ...]:
        return ()

    monkeypatch.setattr(Sandbox, "_try", unprotected)
    with pytest.raises(SandboxError, match="CODE_SANDBOX_ALLOW_WEAK=1"):
        Sandbox(SandboxSettings()).start([PLAIN])
    weak = Sandbox(SandboxSettings(allow_weak=True))
    weak.start([PLAIN])
    assert "files of others out of reach" in weak.missing


def test_what_does_not_work_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that refuses namespaces: the next protection is taken; one that refuses all: nothing starts."""
    works = Sandbox._try

    def refuse_namespaces(self: Sandbox, protection: Protection) -> tuple[str, ...]:
        if protection.namespaces:
            raise SandboxError("unshare: Operation not permitted")
        return works(self, protection)

    monkeypatch.setattr(Sandbox, "_try", refuse_namespaces)
    sandbox = Sandbox(SandboxSettings(concurrency=1, allow_weak=True))
    sandbox.start()
    assert "processes and network of their own" in sandbox.missing
    assert sandbox.run("assert", "x = 1", ["assert x == 1", "assert x == 2"], seconds=10).results == [1, 0]

    def refuse(self: Sandbox, protection: Protection) -> tuple[str, ...]:
        raise SandboxError("unshare: Operation not permitted")

    monkeypatch.setattr(Sandbox, "_try", refuse)
    with pytest.raises(SandboxError, match=r"cannot be run here: unshare: Operation not permitted$"):
        Sandbox(SandboxSettings()).start()
