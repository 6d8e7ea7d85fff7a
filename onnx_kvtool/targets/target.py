"""How a user names a release of a runtime."""

from __future__ import annotations

import re
from dataclasses import dataclass

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.words import closest, unknown_name
from onnx_kvtool.targets.release import Release, number_of
from onnx_kvtool.targets.releases import releases


@dataclass(frozen=True, slots=True)
class Target:
    """A requested release, and the known release whose limits it has.

    Attributes:
        asked: The requested release: `onnxruntime 1.17.9`.
        release: A known release that is not newer, and whose highest opset is known.
        max_opset: This highest opset.
    """

    asked: str
    release: Release
    max_opset: int

    @property
    def is_known(self) -> bool:
        """Whether the requested release is itself known."""
        return self.asked == str(self.release)


def find_target(text: str) -> Target:
    """Return the target that `RUNTIME[@VERSION]` names.

    Without a version, it is the newest known release. A version with fewer parts (`1.17`) means the
    lowest known release that begins with it. These get the limits of the next lower known release:
    any other version between two known ones, a later patch of the newest one, and a known release
    whose highest opset is unknown.

    Raises:
        UsageError: If the runtime is unknown, if the version is no version, if it is lower or
            higher than all known ones, or if kvtool writes nothing for the release.
    """
    known, version = _named(text)
    if version is None:
        return _target(known[-1], known, str(known[-1]))
    meant, asked = _meant(known, version)
    return _target(meant, known, asked)


def limit_reasons(text: str) -> dict[str, str]:
    """Return the reason of each limit of a release, by the name of the limit."""
    return {limit.name: limit.reason for limit in find_target(text).release.limits}


def named_releases(text: str | None) -> tuple[Release, ...]:
    """Return all releases of a runtime, or the one that `RUNTIME@VERSION` names; None names all.

    Raises:
        UsageError: If the runtime is unknown, if the version is no version, or if it is lower or
            higher than all known ones.
    """
    if text is None:
        return releases()
    known, version = _named(text)
    return tuple(known) if version is None else (_meant(known, version)[0],)


def _named(text: str) -> tuple[list[Release], str | None]:
    """Return the releases of the named runtime, and the version if the text has one."""
    name, at, version = text.partition("@")
    known = [r for r in releases() if r.runtime == name.strip().lower()]
    if not known:
        raise _unknown_runtime(name)
    return known, version if at else None


def _meant(known: list[Release], version: str) -> tuple[Release, str]:
    """Return the known release whose limits a version has, and the name of the version."""
    runtime = known[0].runtime
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9}){0,5}", version):
        raise UsageError(
            f"`{version}` is no version, expected numbers separated by dots",
            help=f"write it like `{runtime}@{known[-1].version}`",
        )
    wanted = number_of(version)
    meant = next((r for r in known if r.number[: len(wanted)] == wanted), None)
    if meant is not None:
        return meant, str(meant)
    lower = [r for r in known if r.number <= wanted]
    if not lower:
        raise UsageError(
            f"{runtime} {version} is older than any release that kvtool knows; the oldest is "
            f"{known[0].version}",
            help=f"use `{runtime}@{known[0].version}`, or choose the opset with `--opset`",
        )
    if lower[-1] is known[-1] and known[-1].number[:2] != wanted[:2]:
        raise UsageError(
            f"{runtime} {version} is newer than any release that kvtool knows; the newest is "
            f"{known[-1].version}",
            help=f"use `{runtime}@{known[-1].version}`, or choose the opset with `--opset`",
        )
    return lower[-1], f"{runtime} {version}"


def _target(release: Release, known: list[Release], asked: str) -> Target:
    """Return a target: `release`, or the next lower one whose highest opset is known."""
    if release.unsupported is not None:
        later = next(
            (r for r in known if r.unsupported is None and r.number > release.number), None
        )
        raise UsageError(
            f"nothing can be lowered for {asked}: it {release.unsupported}",
            help=None if later is None else f"use `{later.runtime}@{later.version}`",
        )
    for candidate in reversed(known[: known.index(release) + 1]):
        if candidate.max_opset is not None and candidate.unsupported is None:
            return Target(asked, candidate, candidate.max_opset)
    raise ValueError(f"runtimes.toml gives the lowest release of {release.runtime} no max_opset")


def _unknown_runtime(name: str) -> UsageError:
    runtimes = list(dict.fromkeys(r.runtime for r in releases()))
    message = f"kvtool knows no runtime `{name}`"
    spelt = [f"{r.runtime}@{r.version}" for r in releases()] if re.search("[0-9]", name) else []
    near = closest(name.strip(), [*spelt, *runtimes])
    if near is None:
        return unknown_name(message, name, runtimes)
    return UsageError(message, help=f"did you mean `{near}`?")
