"""Whether a shared library is all there: one that was cut short may load all the same, and crash later."""

from __future__ import annotations

import struct

HEADER = struct.Struct("<16x2xH4x8xQQ4x6H")  # of ELF64, little endian, from e_ident to e_shstrndx: elf(5)
SEGMENT = struct.Struct("<8xQ16xQ16x")  # of a program header: p_offset, p_filesz
MAGIC = b"\x7fELF"
JUDGED = MAGIC + b"\x02\x01"


def is_whole(path: str) -> bool:
    """Tell whether an ELF file reaches to the end of its section headers and of every segment.

    The section headers come last in what GNU ld, gold, lld and mold write. What is no ELF file is not whole; an ELF
    file that is not 64-bit and little-endian is taken to be. Raises OSError if it cannot be read.
    """
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        head = file.read(HEADER.size)
        if len(head) < HEADER.size or not head.startswith(JUDGED):
            return len(head) == HEADER.size and head.startswith(MAGIC)
        _, segments, sections, _, segment_size, segment_count, section_size, section_count, _ = HEADER.unpack(head)
        if max(sections + section_size * section_count, segments + segment_size * segment_count) > size:
            return False
        file.seek(segments)
        table = file.read(segment_size * segment_count)
        return len(table) % SEGMENT.size == 0 and all(end <= size for end in map(sum, SEGMENT.iter_unpack(table)))
