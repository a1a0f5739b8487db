"""The comparison's report and the tables of its page, from results that were not measured here."""

import json
from pathlib import Path

import pytest

from scripts.bench.compare import page, passes, report, workload
from scripts.bench.compare.arms import chosen
from tests.bench.results import result


class TestReport:
    arms = tuple(chosen(["ours/none", "ours/stub/*", "trl/none"]))

    def test_what_reading_adds_is_taken_within_a_pass(self) -> None:
        # The machine becomes slower with each pass: medians of each arm alone would mix passes.
        results = [result("ours/none", seconds, repeat=k) for k, seconds in enumerate((1.0, 2.0, 4.0))]
        results += [result("ours/stub/streamed", seconds + 0.5, repeat=k) for k, seconds in enumerate((1.0, 2.0, 4.0))]
        results += [result("ours/stub/batched", seconds + 2.0, repeat=k) for k, seconds in ((0, 1.0), (2, 4.0))]
        entries = {entry["arm"]: entry for entry in report.summary(self.arms, "equal", results)}
        assert (entries["ours/stub/streamed"]["adds_s"], entries["ours/stub/streamed"]["adds"]) == (0.5, 0.25)
        assert entries["ours/stub/batched"]["adds_s"] == 2.0
        assert entries["ours/none"]["median_s"] == 2.0
        assert "adds_s" not in entries["ours/none"]
        assert report.streamed_shares(list(entries.values())) == {"ours/stub": 0.25}

    def test_peers_are_compared_within_a_pass(self) -> None:
        results = [result("ours/none", seconds, repeat=k) for k, seconds in enumerate((1.0, 2.0, 4.0))]
        results += [result("trl/none", seconds / 2, repeat=k) for k, seconds in ((0, 1.0), (2, 4.0))]
        results += [result("trl/one/batched", 9.0), result("plain-verl/none", 1.0, repeat=7)]
        assert report.of_peers("equal", results) == {"trl/none": 2.0}
        assert "ours/none takes 200% of the time of trl/none" in report.card(self.arms, ["equal"], results)[0]

    def test_an_error_is_never_a_time(self) -> None:
        broken = {"arm": "trl/none", "lengths": "equal", "repeat": 0, "error": "it broke"}
        text, found = report.card(self.arms, ["equal"], [result("ours/none", 1.0), broken])
        rows = {line.split()[0]: line.split()[1:3] for line in text.splitlines() if "/" in line.split(" ")[0]}
        assert rows["trl/none"] == ["failed", "-"]
        assert rows["ours/stub/streamed"] == ["not", "run"]
        assert "trl/none failed: it broke" in text
        assert report.failed(found)
        assert not report.failed(report.card(self.arms, ["equal"], [result("ours/none", 1.0)])[1])

    def test_a_failed_pass_is_told_beside_the_times_of_the_others(self) -> None:
        broken = {"arm": "trl/none", "lengths": "equal", "repeat": 1, "error": "out of memory"}
        text, found = report.card(self.arms, ["equal"], [result("trl/none", 1.0), broken])
        assert "1.00 to 1.00 (1), 1 failed" in text
        assert "trl/none failed: out of memory" in text
        assert report.failed(found)

    def test_a_failure_that_was_made_good_counts_no_more(self) -> None:
        broken = {"arm": "trl/none", "lengths": "equal", "repeat": 0, "error": "it broke"}
        _, found = report.card(self.arms, ["equal"], [broken, result("trl/none", 1.0)])
        assert not report.failed(found)

    def test_sets_of_lengths_are_kept_apart(self) -> None:
        results = [result("ours/none", 1.0), result("ours/none", 3.0, lengths="real")]
        _, found = report.card(self.arms, workload.LENGTHS, results)
        assert [found[kind]["arms"][0]["median_s"] for kind in workload.LENGTHS] == [1.0, 3.0]


class TestPage:
    def test_it_is_written_between_its_marks(self, tmp_path: Path) -> None:
        copy = tmp_path / "benchmarks.md"
        before = page.PAGE.read_text()
        copy.write_text(before)
        conditions = passes.conditions(3, "4M")
        lines = [result(arm, 1.25, at=1e9, conditions=conditions) for arm in ("ours/none", "trl/none")]
        (tmp_path / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        page.write(chosen(["*/none"]), ["equal"], tmp_path, 3, page=copy)
        page.write(chosen(["*/none"]), ["equal"], tmp_path, 3, page=copy)
        after = copy.read_text()
        assert after.count("| trl/none | 1.25 |") == 1
        assert "2001-09-09" in after
        assert "* trl: torch 2.13.0\n" in after
        assert after.partition(page.BEGIN)[0] == before.partition(page.BEGIN)[0]
        assert after.partition(page.END)[2] == before.partition(page.END)[2]

    def test_without_runs_nothing_is_written(self, tmp_path: Path) -> None:
        with pytest.raises(SystemExit, match="holds no runs of 5 steps"):
            page.write(chosen(["*/none"]), ["equal"], tmp_path, 3, page=tmp_path / "none.md")
