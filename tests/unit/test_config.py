"""RACEFIX_* variables: what they mean, and a clear word about each that means nothing."""

from __future__ import annotations

import pytest

from racefix import config


def test_defaults() -> None:
    assert config.parse({"PATH": "/bin"}) == config.Config()


@pytest.mark.parametrize("text", ["a.b,c", "a.b c", " a.b ,\n c, "])
def test_names_are_separated_by_commas_or_blanks(text: str) -> None:
    assert config.parse({"RACEFIX_DISABLE": text}).disable == ("a.b", "c")


@pytest.mark.parametrize("name", ["lib.fault", "lib", "all"])
def test_a_patch_is_named_by_itself_its_library_or_all(name: str) -> None:
    assert config.parse({"RACEFIX_DISABLE": name}).is_disabled("lib.fault")
    assert config.parse({"RACEFIX_FORCE": name}).is_forced("lib.fault")
    assert not config.parse({"RACEFIX_DISABLE": "library lib.other"}).is_disabled("lib.fault")


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("RACEFIX_LOG", "inof", "RACEFIX_LOG='inof' is none of off, warning, info, debug; did you mean info?"),
        ("RACEFIX_STRICT", "yes", "RACEFIX_STRICT='yes' is none of 0, 1"),
        ("RACEFIX_CACHE", "allways", "RACEFIX_CACHE='allways' is none of auto, always, never; did you mean always?"),
        ("RACEFIX_DISBALE", "x", "unknown variable RACEFIX_DISBALE; did you mean RACEFIX_DISABLE?"),
        ("RACEFIX_REPORT", "/dev/null", "RACEFIX_REPORT='/dev/null' is not a directory; no report is written"),
    ],
)
def test_a_bad_value_is_a_problem_that_names_its_variable_and_loses_nothing(
    variable: str, value: str, problem: str
) -> None:
    parsed = config.parse({variable: value, "RACEFIX_DISABLE": "kept"})
    assert parsed == config.Config(disable=("kept",), problems=(problem,))


def test_good_values() -> None:
    parsed = config.parse(
        {"RACEFIX_LOG": "INFO", "RACEFIX_STRICT": "1", "RACEFIX_CACHE": "never", "RACEFIX_REPORT": "/not/there/yet"}
    )
    assert (parsed.log, parsed.strict, parsed.cache, parsed.report) == ("info", True, "never", "/not/there/yet")
    assert parsed.problems == ()


def test_a_name_that_no_patch_has_comes_with_the_nearest() -> None:
    parsed = config.parse({"RACEFIX_DISABLE": "lib.fualt,lib", "RACEFIX_FORCE": "nothing-like-it all"})
    assert config.unknown_names(parsed, ["lib.fault"]) == [
        "RACEFIX_DISABLE names 'lib.fualt', which is no patch or library; did you mean lib.fault?",
        "RACEFIX_FORCE names 'nothing-like-it', which is no patch or library",
    ]
