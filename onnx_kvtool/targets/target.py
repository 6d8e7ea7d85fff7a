"""How a user names a release of a runtime."""

from __future__ import annotations

import re
from dataclasses import dataclass

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.words import closest, unknown_name
from onnx_kvtool.targets.release import Release
from onnx_kvtool.targets.releases import releases


@dataclass(frozen=True, slots=True)
class Target:
    """What a user asked for, and the release whose limits hold for it.

    Attributes:
        asked: The release as it was asked for: `onnxruntime 1.17.9`.
        release: A known release that is not newer; its highest opset is known.
        max_opset: That highest opset.
    """

    asked: str
    release: Release
    max_opset: int

    @property
    def is_known(self) -> bool:
        """Whether the release that was asked for is itself known."""
        return self.asked == str(self.release)


def find_target(text: str) -> Target:
    """Return what `RUNTIME[@VERSION]` names.

    Without a version it is the newest known release. A version with fewer parts than the known ones
    (`1.17`) is the lowest known one that begins so; any other between two known ones, and a later
    patch of the newest, has the limits of the next lower known one. So has a known one whose
    highest opset is unknown.

    Raises:
        UsageError: If the runtime is unknown, if the version is no version, if it is below or
            above all that are known, or if nothing can be written for the release.
    """
    known, version = _named(text)
    if version is None:
        return _target(known[-1], known, str(known[-1]))
    meant, asked = _meant(known, version)
    return _target(meant, known, asked)


def limit_reasons(text: str) -> dict[str, str]:
    """Return the limits of a release by name, each with what the release does."""
    return {limit.name: limit.reason for limit in find_target(text).release.limits}


def named_releases(text: str | None) -> tuple[Release, ...]:
    """Return all releases of a runtime, or the one that `RUNTIME@VERSION` names; None names all.

    Raises:
        UsageError: If the runtime is unknown, if the version is no version, or if it is below or
            above all that are known.
    """
    if text is None:
        return releases()
    known, version = _named(text)
    return tuple(known) if version is None else (_meant(known, version)[0],)


def _named(text: str) -> tuple[list[Release], str | None]:
    """Return the releases of the runtime that is named, and the version if one is."""
    name, at, version = text.partition("@")
    known = [r for r in releases() if r.runtime == name.strip().lower()]
    if not known:
        raise _unknown_runtime(name)
    return known, version if at else None


def _meant(known: list[Release], version: str) -> tuple[Release, str]:
    """Return the release whose limits a version has, and what it is called."""
    runtime = known[0].runtime
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9}){0,5}", version):
        raise UsageError(
            f"`{version}` is no version, expected numbers separated by dots",
            help=f"write it like `{runtime}@{known[-1].version}`",
        )
    wanted = tuple(int(part) for part in version.split("."))
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
    """Step down to a release whose highest opset is known; the lowest of each runtime has one."""
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
