"""A shared library that was cut short anywhere is told from a whole one; what cannot be judged is not accused."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from racefix import elf

CC = shutil.which("cc")
SOURCE = "static char blob[50000] = {1}; int f(int i) { return blob[i % 50000]; }\n"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not CC:
        pytest.skip("no C compiler here")
    directory = tmp_path_factory.mktemp("library")
    (directory / "x.c").write_text(SOURCE)
    subprocess.run([CC, "-g", "-shared", "-fPIC", "-o", "x.so", "x.c"], cwd=directory, check=True)
    return directory / "x.so"


def header(
    start: bytes = elf.JUDGED, sections: int = 0, count: int = 0, segments: int = 0, segment_count: int = 0
) -> bytes:
    """Make the header of an ELF64 file, little endian, with section headers and segments as they are said to be."""
    tables = struct.pack("<QQ4x6H", segments, sections, 64, 56, segment_count, 64, count, 0)
    return start.ljust(32, b"\0") + tables


def put(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def test_a_real_library_is_whole_and_no_part_of_it(library: Path, tmp_path: Path) -> None:
    data = library.read_bytes()
    assert elf.is_whole(str(library))

    @settings(max_examples=300, deadline=None)
    @given(length=st.integers(0, len(data) - 1))
    @example(length=0)
    @example(length=63)
    @example(length=64)
    @example(length=len(data) - 1)
    def cut(length: int) -> None:
        assert not elf.is_whole(put(tmp_path / "cut.so", data[:length]))

    cut()


def test_what_strip_leaves_is_whole_and_no_part_of_it(library: Path, tmp_path: Path) -> None:
    if not shutil.which("strip"):
        pytest.skip("no strip here")
    stripped = tmp_path / "stripped.so"
    subprocess.run(["strip", "-o", stripped, library], check=True)
    data = stripped.read_bytes()
    assert len(data) < library.stat().st_size
    assert elf.is_whole(str(stripped))
    for length in range(0, len(data), 997):
        assert not elf.is_whole(put(tmp_path / "cut.so", data[:length]))
    assert not elf.is_whole(put(tmp_path / "cut.so", data[:-1]))


@pytest.mark.parametrize("more", [b"\0", b"a signature, or a kernel's code object" * 9])
def test_what_follows_the_end_does_not_count(more: bytes, library: Path, tmp_path: Path) -> None:
    assert elf.is_whole(put(tmp_path / "x.so", library.read_bytes() + more))


def test_without_section_headers_the_segments_decide(tmp_path: Path) -> None:
    segment = struct.pack("<8xQ16xQ16x", 120, 80)
    whole = header(segments=64, segment_count=1) + segment + b"x" * 80
    assert elf.is_whole(put(tmp_path / "x.so", whole))
    for length in range(len(whole)):
        assert not elf.is_whole(put(tmp_path / "x.so", whole[:length])), length


def test_section_headers_that_reach_beyond_the_end(tmp_path: Path) -> None:
    assert elf.is_whole(put(tmp_path / "x.so", header(sections=64, count=3) + bytes(3 * 64)))
    assert not elf.is_whole(put(tmp_path / "x.so", header(sections=64, count=3) + bytes(3 * 64 - 1)))


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"!<arch>\n" * 90, b"some text\n" * 90, bytes(9000)])
def test_what_is_no_elf_file_is_not_whole(data: bytes, tmp_path: Path) -> None:
    assert not elf.is_whole(put(tmp_path / "x.so", data))


@pytest.mark.parametrize(
    "start", [b"\x7fELF\x01\x01", b"\x7fELF\x02\x02", b"\x7fELF\x01\x02"], ids=["32-bit", "big-endian", "both"]
)
def test_other_machines_files_are_taken_to_be_whole_but_for_their_head(start: bytes, tmp_path: Path) -> None:
    data = header(start, sections=10**9, count=9)  # which means nothing in their order of bytes
    assert elf.is_whole(put(tmp_path / "x.so", data))
    assert not elf.is_whole(put(tmp_path / "x.so", data[:-1]))


def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        elf.is_whole(str(tmp_path / "missing.so"))
    with pytest.raises(IsADirectoryError):
        elf.is_whole(str(tmp_path))


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=200), judged=st.booleans())
def test_nonsense_is_judged_without_an_error(
    data: bytes, judged: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "nonsense.so"
    assert elf.is_whole(put(path, (elf.JUDGED if judged else b"") + data)) in (True, False)
