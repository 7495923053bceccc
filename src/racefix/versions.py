"""Which release of a library is installed, and on which side of a fault it stands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from importlib_metadata import PackageNotFoundError, distribution
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version


@dataclass(frozen=True)
class Installed:
    """A distribution that is installed, and its version as its metadata has it."""

    distribution: str
    text: str

    @property
    def version(self) -> Version | None:
        """The version, or None where it is not one that PEP 440 knows (a vendor's own numbering)."""
        try:
            return Version(self.text)
        except InvalidVersion:
            return None


def installed(distributions: Iterable[str]) -> Installed | None:
    """Return the first of these distributions that is installed, or None. Reads metadata, imports nothing."""
    for name in distributions:
        try:
            return Installed(name, distribution(name).version)
        except PackageNotFoundError:
            continue
    return None


def is_affected(version: Version, affected: str) -> bool:
    """Tell whether a version lies in a specifier; pre-, development and local versions count like any other."""
    return SpecifierSet(affected).contains(version, prereleases=True)


def is_fixed(version: Version, fixed_in: str | None) -> bool:
    """Tell whether a version is at or past the release with the fix; its own pre-releases are not."""
    return fixed_in is not None and version >= Version(fixed_in)
