"""Counters, log lines and the report: complete, quiet by default, and never in the way."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
from pathlib import Path

import pytest

from racefix import config, events


def configure(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"RACEFIX_{name}", value)
    config.current.cache_clear()


@pytest.mark.parametrize(
    ("level", "logged"),
    [
        ("off", []),
        ("warning", ["failed"]),
        ("info", ["applied", "averted", "failed"]),
        ("debug", ["applied", "averted", "retried", "waited", "failed"]),
    ],
)
def test_each_level_lets_its_events_through(
    level: str, logged: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    configure(monkeypatch, LOG=level)
    for event in ("applied", "averted", "retried", "waited", "failed"):
        events.record(event, "lib.fault", "what happened")
    assert [message.split(": ")[2] for message in caplog.messages] == logged
    assert events.counts["lib.fault", "waited"] == 1


def test_lines_name_host_rank_and_process(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("RANK", "3")
    events.warn("look here")
    assert caplog.messages == [f"racefix [{os.uname().nodename} rank 3 pid {os.getpid()}]: look here"]


def test_a_level_that_the_application_set_stays(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("racefix").setLevel(logging.ERROR)
    configure(monkeypatch, LOG="info")
    events.warn("not wanted")
    assert caplog.messages == []


def lines(directory: Path) -> list[dict[str, object]]:
    return [json.loads(line) for file in sorted(directory.iterdir()) for line in file.read_text().splitlines()]


def test_the_report_has_a_file_per_process_and_a_line_per_event(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    configure(monkeypatch, REPORT=str(tmp_path / "report"))
    events.record("averted", "lib.fault", "parent")
    child = multiprocessing.get_context("fork").Process(target=events.record, args=("waited", "lib.fault", "child"))
    child.start()
    child.join()
    assert len(list((tmp_path / "report").iterdir())) == 2
    assert {(line["pid"], line["event"], line["detail"]) for line in lines(tmp_path / "report")} == {
        (os.getpid(), "averted", "parent"),
        (child.pid, "waited", "child"),
    }


def test_a_report_that_cannot_be_written_costs_one_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    configure(monkeypatch, REPORT=str(tmp_path / "report"))
    assert config.current().report
    (tmp_path / "report").write_text("a file came between")
    for _ in range(3):
        events.record("retried", "lib.fault", "x")
    assert len(caplog.messages) == 1
    assert "RACEFIX_REPORT" in caplog.messages[0]
    assert events.counts["lib.fault", "retried"] == 3


def test_a_forked_child_counts_for_itself() -> None:
    events.record("averted", "lib.fault", "x")
    pid = os.fork()
    if pid == 0:
        os._exit(len(events.counts))
    assert os.waitpid(pid, 0)[1] == 0
    assert events.counts["lib.fault", "averted"] == 1
