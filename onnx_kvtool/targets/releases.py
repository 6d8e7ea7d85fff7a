"""The releases that `runtimes.toml` describes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, cast

from onnx_kvtool.core.tables import Table
from onnx_kvtool.targets.release import Evidence, Known, Limit, Release, number_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@cache
def releases() -> tuple[Release, ...]:
    """Return every known release, runtime by runtime, each in ascending order."""
    text = files("onnx_kvtool.targets").joinpath("runtimes.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    limits = Table(
        "limit", ((line["name"], (line["releases"], _limit(line))) for line in data["limit"])
    )
    lines = [_release(line, limits.values(), data) for line in data["release"]]
    return tuple(Table("release", ((str(release), release) for release in lines)).values())


def _limit(line: Mapping[str, Any]) -> Limit:
    _evidence(line)
    return Limit(**_fields(line, "releases"))


def _fields(line: Mapping[str, Any], *others: str) -> dict[str, Any]:
    """Return the keys of a line that are the fields of its record, without `others`."""
    own = ((key, value) for key, value in line.items() if key not in others)
    return {key: tuple(value) if isinstance(value, list) else value for key, value in own}


def _whole(line: Mapping[str, Any], key: str, operator: str, reason: str) -> Limit:
    """Return a limit for all nodes of an operator."""
    source, name, evidence = _source(line), f"{key}-{operator}", _evidence(line)
    return Limit(name, operator, "always", reason, evidence, source, listed=True)


def _source(line: Mapping[str, Any]) -> str:
    """Return the source of the facts in `lacks`, `errs` and `constants`."""
    if _evidence(line) == "documented":
        return str(line["source"])
    return f"onnx's backend cases in {line['runtime']} {line['version']}"


def _constant(line: Mapping[str, Any], entry: str) -> Limit:
    """Return the limit that an input of an operator must be a constant."""
    operator, _, operand = entry.partition(".")
    return Limit(
        name=f"constants-{entry}",
        operator=operator,
        when="not-constant",
        reason=f"takes {operator} with a constant `{operand}` only",
        evidence=_evidence(line),
        source=_source(line),
        help="fix the dimensions that it is computed from with `--dim`, or export it as a constant",
        operand=operand,
        listed=True,
    )


def _known(line: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> dict[str, Known]:
    """Return the operators of onnxruntime that a release supports in part."""
    found: dict[str, Known] = {}
    for step in steps:
        if number_of(step["version"]) <= number_of(line["version"]):
            values = {name: tuple(these) for name, these in step.get("values", {}).items()}
            without, errs = frozenset(step.get("without", ())), frozenset(step.get("errs", ()))
            found[step["operator"]] = Known(step["inputs"], without, values, errs)
    return found


def _holds(line: Mapping[str, Any], releases: str) -> bool:
    """Return whether a release, or the runtime of its kernels, is one of `tract 0.23.9+, ...`."""
    number = number_of(line["version"])
    for span in releases.split(", "):
        runtime, _, versions = span.partition(" ")
        first, _, last = versions.partition(" to ")
        is_after = number_of(first.rstrip("+")) <= number
        is_before = first.endswith("+") or number <= number_of(last or first)
        if runtime in (line["runtime"], line.get("kernels")) and is_after and is_before:
            return True
    return False


def _release(
    line: Mapping[str, Any], limits: Iterable[tuple[str, Limit]], data: Mapping[str, Any]
) -> Release:
    def listed(key: str, entries: str) -> list[str]:
        groups = [group for group in data[key] if _holds(line, group["releases"])]
        return sorted(entry for group in groups for entry in group[entries])

    explicit = [attribute.partition(".") for attribute in line.get("explicit", ())]
    own = [limit for those, limit in limits if _holds(line, those)]
    lacks = [_whole(line, "lacks", op, f"computes no {op}") for op in listed("lacks", "operators")]
    errs = [
        _whole(line, "errs", op, f"computes some forms of {op} wrongly")
        for op in listed("errs", "operators")
    ]
    constants = [_constant(line, entry) for entry in listed("constants", "inputs")]
    return Release(
        **_fields(line, "kernels", "explicit", "contrib", "types"),
        limits=(*own, *lacks, *errs, *constants),
        explicit=frozenset((operator, name) for operator, _, name in explicit),
        contrib=frozenset(line["contrib"]) if "contrib" in line else None,
        narrower=_known(line, data["contrib"].get(line.get("kernels", line["runtime"]), ())),
        types=frozenset(line["types"]) if "types" in line else None,
    )


def _evidence(line: Mapping[str, Any]) -> Evidence:
    evidence = line["evidence"]
    if evidence not in ("measured", "documented"):
        raise ValueError(f"runtimes.toml says `{evidence}`, expected `measured` or `documented`")
    return cast(Evidence, evidence)
