"""Every state a target can have, how patches come into force, and how they go: on a made-up library, imported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import FAULTY, FIXED, coldlib, python

UNKNOWN = FAULTY.replace("return True", "return 1")


def states(site: Path, code: str = "", env: dict[str, str] | None = None) -> tuple[dict[str, Any], str]:
    """Run code, then return the made-up patch's status and what was written to standard error."""
    program = f"""
{code}
import json, racefix
status = racefix.status().as_dict()
print(json.dumps(next(patch for patch in status["patches"] if patch["name"] == "coldlib.make")))
"""
    env = {"TMPDIR": str(site / "tmp"), "SLURM_JOB_ID": "1", **(env or {})}
    (site / "tmp").mkdir(exist_ok=True)
    done = python(program, path=[site], env=env)
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


APPLY_THEN_IMPORT = "import racefix; racefix.apply(); import coldlib.cache"
WRAPPED = (
    f"{FAULTY}\nimport functools\ndef traced(f):\n  return functools.wraps(f)(lambda *a: f(*a))\nmake = traced(make)\n"
)


@pytest.mark.parametrize(
    ("version", "source", "env", "state", "reason"),
    [
        ("1.0", FAULTY, {}, "applied", "the code of 1.0"),
        ("9.9", FAULTY, {}, "applied", "the code of 1.0"),
        ("0.1", FAULTY, {}, "applied", "the code of 1.0"),
        ("1.0", FIXED, {}, "fixed-upstream", "the code of 2.0, which has the fix"),
        ("3.1", UNKNOWN, {}, "fixed-upstream", "3.1 is at or past 3.0"),
        ("3.0+cu130", UNKNOWN, {}, "fixed-upstream", "3.0+cu130 is at or past 3.0"),
        ("0.9", UNKNOWN, {}, "not-affected", "0.9 is not in >=1.0"),
        ("1.0", "", {}, "not-affected", "there is no make in it"),
        ("1.0", WRAPPED, {}, "foreign", "somebody else has wrapped it"),
        ("1.0", UNKNOWN, {}, "unknown-code", "its code is not one of those recorded; RACEFIX_FORCE=coldlib.make app"),
        ("3.0rc1", UNKNOWN, {}, "unknown-code", "its code is not one of those recorded"),
        ("1.0-acme-build", UNKNOWN, {}, "unknown-code", "its code is not one of those recorded"),
        ("1.0-acme-build", FAULTY, {}, "applied", "the code of 1.0"),
        ("1.0", UNKNOWN, {"RACEFIX_FORCE": "coldlib.make"}, "applied", "but RACEFIX_FORCE names it"),
        ("1.0", WRAPPED, {"RACEFIX_FORCE": "coldlib.make"}, "foreign", "somebody else has wrapped it"),
        ("1.0", FAULTY, {"RACEFIX_DISABLE": "coldlib.make"}, "disabled", "named in RACEFIX_DISABLE"),
        ("1.0", FAULTY, {"RACEFIX_DISABLE": "x coldlib"}, "disabled", "named in RACEFIX_DISABLE"),
        ("1.0", FAULTY, {"RACEFIX_DISABLE": "all"}, "disabled", "named in RACEFIX_DISABLE"),
    ],
)
def test_states_of_an_imported_library(
    version: str, source: str, env: dict[str, str], state: str, reason: str, tmp_path: Path
) -> None:
    status, _ = states(coldlib(tmp_path, version, source), APPLY_THEN_IMPORT, env)
    assert status["state"] == status["targets"][0]["state"] == state
    assert reason in status["reason"]
    assert (status["distribution"], status["installed"]) == ("coldlib", version)


@pytest.mark.parametrize(
    ("version", "source", "state"),
    [
        ("1.0", FAULTY, "ready"),
        ("1.0", FIXED, "fixed-upstream"),
        ("1.0", UNKNOWN, "unknown-code"),
        ("1.0", "", "not-affected"),
        ("1.0", "def make(:", "unknown-code"),
    ],
)
def test_states_before_the_import_are_read_from_the_source(
    version: str, source: str, state: str, tmp_path: Path
) -> None:
    status, _ = states(coldlib(tmp_path, version, source), "", {})
    assert status["state"] == state


def test_status_imports_nothing_of_the_library(tmp_path: Path) -> None:
    site = coldlib(tmp_path)
    (site / "coldlib" / "__init__.py").write_text("raise SystemExit('imported')")
    assert states(site)[0]["state"] == "ready"


def test_a_library_that_is_not_there(tmp_path: Path) -> None:
    site = coldlib(tmp_path)
    (site / "coldlib").rename(site / "gone")
    assert states(site)[0]["state"] == "not-affected"
    (site / "coldlib-1.0.dist-info").rename(site / "gone" / "info")
    assert states(site)[0]["state"] == "not-installed"


def test_a_library_without_metadata_is_known_by_its_code(tmp_path: Path) -> None:
    site = coldlib(tmp_path)
    (site / "coldlib-1.0.dist-info").rename(site / "gone")
    status, _ = states(site, APPLY_THEN_IMPORT)
    assert (status["state"], status["installed"]) == ("applied", None)


def test_a_library_without_source_is_unknown(tmp_path: Path) -> None:
    import compileall

    site = coldlib(tmp_path)
    compileall.compile_dir(site / "coldlib", quiet=1, legacy=True)
    (site / "coldlib" / "cache.py").unlink()
    for code in ("", APPLY_THEN_IMPORT):
        status, _ = states(site, code)
        assert (status["state"], "no source" in status["reason"]) == ("unknown-code", True)


def test_unknown_code_is_one_warning_per_host_and_job_that_says_how_to_force_it(tmp_path: Path) -> None:
    site = coldlib(tmp_path, "1.0", UNKNOWN)
    warnings = [states(site, APPLY_THEN_IMPORT)[1] for _ in range(3)]
    assert [warning.count("RACEFIX_FORCE=coldlib.make") for warning in warnings] == [1, 0, 0]
    assert "coldlib.cache:make of coldlib 1.0" in warnings[0]
    assert states(site, APPLY_THEN_IMPORT, {"SLURM_JOB_ID": "2"})[1].count("RACEFIX_FORCE=coldlib.make") == 1
    assert states(site, APPLY_THEN_IMPORT, {"SLURM_JOB_ID": "3", "RACEFIX_LOG": "off"})[1] == ""


def run(tmp_path: Path, program: str, env: dict[str, str] | None = None, **library: str) -> list[str]:
    done = python(program, path=[coldlib(tmp_path / "site", **library)], env=env)
    return (done.stdout + done.stderr).splitlines()


def test_the_importer_gets_the_patched_function(tmp_path: Path) -> None:
    program = """
        import racefix, inspect, pickle; racefix.apply()
        from coldlib.user import make, default
        print(make("x", ""), default()("x", ""), inspect.signature(make), make.__doc__)
        assert pickle.loads(pickle.dumps(make)) is make
    """
    assert run(tmp_path, program) == ["safe safe (path, content) Write a file if it is not there."]


def test_a_late_apply_rebinds_copies_and_says_what_it_cannot_reach(tmp_path: Path) -> None:
    program = """
        import coldlib.user, functools
        copy = coldlib.user.make
        def closure():
            return copy("x", "") if make is None else make
        def outer():
            make = coldlib.user.make
            def inner(): return make
            return inner
        inner = outer()
        import racefix; racefix.apply(); racefix.apply()
        import coldlib.cache
        print(coldlib.user.make is coldlib.cache.make, coldlib.cache.make("x", ""), copy is coldlib.cache.make)
        print(next(p for p in racefix.status().patches if p.name == "coldlib.make").reason)
    """
    first, reason = run(tmp_path, program)
    assert first == "True safe False"
    assert "a closure of __main__:outer.<locals>.inner" in reason
    assert "a default of coldlib.user:<lambda>" in reason


def test_reload_patches_again(tmp_path: Path) -> None:
    program = """
        import racefix; racefix.apply()
        import coldlib.cache, importlib
        first = coldlib.cache.make
        importlib.reload(coldlib.cache)
        print(coldlib.cache.make("x", ""), coldlib.cache.make is first)
    """
    assert run(tmp_path, program) == ["safe False"]


def test_remove_restores_everything_and_apply_brings_it_back(tmp_path: Path) -> None:
    program = """
        import sys, coldlib.cache
        original = coldlib.cache.make
        import racefix; racefix.apply()
        import coldlib.user
        from coldlib.cache import make
        racefix.remove()
        assert coldlib.cache.make is original and coldlib.user.make is original and make is original
        assert not [f for f in sys.meta_path if type(f).__module__.startswith("racefix")]
        assert not racefix.status().active
        racefix.apply()
        print(coldlib.user.make("x", ""), racefix.status().activation)
    """
    assert run(tmp_path, program) == ["safe apply"]


def test_remove_leaves_what_somebody_wrapped_since_and_says_so(tmp_path: Path) -> None:
    program = """
        import racefix; racefix.apply()
        import coldlib.cache
        ours = coldlib.cache.make
        coldlib.cache.make = lambda *a, ours=ours: "traced " + ours(*a)
        racefix.remove()
        print(coldlib.cache.make("x", ""))
    """
    out = run(tmp_path, program)
    assert out[0] == "traced safe"
    assert "coldlib.cache:make has been wrapped by somebody else since" in out[1]


def test_threads_that_import_and_apply_at_once(tmp_path: Path) -> None:
    program = """
        import racefix, threading, sys
        sys.setswitchinterval(1e-6)
        barrier = threading.Barrier(8)
        seen = []
        def work(number):
            barrier.wait()
            if number % 2:
                racefix.apply()
            from coldlib.cache import make
            racefix.apply()
            import coldlib.cache
            seen.append(coldlib.cache.make)
        racefix.apply()
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        [t.start() for t in threads]; [t.join() for t in threads]
        print(len(set(seen)), seen[0]("x", ""), seen[0].__wrapped__.__code__.co_filename.endswith("cache.py"))
    """
    assert run(tmp_path, program) == ["1 safe True"]


def test_a_wrapper_that_fails_leaves_the_original_and_warns(tmp_path: Path) -> None:
    site = coldlib(tmp_path)
    patches = site / "coldlib_patches.py"
    patches.write_text(patches.read_text().replace('falls_back("coldlib.make", make)', "lambda original: 1 / 0"))
    status, errors = states(site, APPLY_THEN_IMPORT + "; print(coldlib.cache.make)")
    assert (status["state"], status["reason"]) == ("failed", "ZeroDivisionError: division by zero")
    assert errors.count("ZeroDivisionError") == 1
    strict = python(APPLY_THEN_IMPORT, path=[site], env={"RACEFIX_STRICT": "1"}, check=False)
    assert "ZeroDivisionError" in strict.stderr
    assert strict.returncode == 1


def test_a_fault_in_the_body_is_prepared_before_it_runs(tmp_path: Path) -> None:
    site = coldlib(tmp_path, source=f"{FAULTY}\nmade = prepared\n")
    patches = site / "coldlib_patches.py"
    before = 'lambda module: vars(module).update(prepared="before"), "3.0", "before"'
    patches.write_text(patches.read_text().replace('falls_back("coldlib.make", make), "3.0"', before))
    status, errors = states(site, APPLY_THEN_IMPORT + "; assert coldlib.cache.made == 'before'")
    assert (status["state"], errors) == ("applied", "")
    late = (
        "import sys, builtins; builtins.prepared = ''; import coldlib.cache, racefix; racefix.apply(); racefix.apply()"
    )
    status, errors = states(site, late)
    assert (status["state"], "ran before racefix was applied" in status["reason"]) == ("failed", True)


def test_a_signature_is_enough_for_a_wrapper_that_calls_the_original(tmp_path: Path) -> None:
    site = coldlib(tmp_path, "1.0", UNKNOWN)
    patches = site / "coldlib_patches.py"
    text = patches.read_text()
    patches.write_text(text.replace("bodies=bodies", 'bodies=bodies, signature=frozenset({"path, content"})'))
    assert states(site, APPLY_THEN_IMPORT)[0]["state"] == "applied"
    patches.write_text(text.replace("bodies=bodies", 'bodies=bodies, signature=frozenset({"path"})'))
    assert states(site, APPLY_THEN_IMPORT)[0]["state"] == "unknown-code"


def test_info_has_a_line_per_patch_and_per_race_averted(tmp_path: Path) -> None:
    program = "import racefix; racefix.apply()\nfrom coldlib.cache import make\nmake('x', '')"
    out = run(tmp_path, program, {"RACEFIX_LOG": "info", "RANK": "5"})
    assert [" rank 5 " in line for line in out] == [True, True]
    assert "coldlib.make: applied: coldlib.cache:make of coldlib 1.0: the code of 1.0" in out[0]
    assert out[1].endswith("coldlib.make: averted: x")


def test_torch_compile_sees_the_patched_function(tmp_path: Path) -> None:
    """Dynamo looks through wrapt's proxies at the original; a wrapper here is a plain function."""
    program = """
        import racefix, types; racefix.apply()
        from coldlib.cache import make
        print(type(make) is types.FunctionType, make.__code__ is not make.__wrapped__.__code__)
    """
    assert run(tmp_path, program) == ["True True"]
