"""`check --target` reports an error where `lower --target` refuses, and none of what it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

import onnx_kvtool as kv
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.rewrite.lowering.table import LOWERINGS
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.targets.limits import REPLACED
from onnx_kvtool.targets.releases import releases

_FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"

_SMALL = 4
"""Fixtures that are part of every run, of those with the fewest bytes."""

_MODELS = [
    path.relative_to(_FIXTURES).as_posix()
    for path in sorted(_FIXTURES.rglob("*.onnx"), key=lambda path: (path.stat().st_size, path))
    if not path.name.startswith("BROKEN")
]

_TARGETS = [
    f"{release.runtime}@{release.version}" for release in releases() if release.unsupported is None
]

_ENDS = [
    target
    for place, target in enumerate(_TARGETS)
    if target.partition("@")[0] not in {other.partition("@")[0] for other in _TARGETS[place + 1 :]}
    or target in ("onnxruntime@1.15.1", "tensorrt@8.2")
]
"""The newest release of each runtime, and the oldest where there are many."""

_STRICT = [target for target in _ENDS if target.startswith(("opencv", "tensorrt", "tract"))]
"""The runtimes that refuse most, of which each larger fixture is asked for every second one."""

_CASES = [
    *((name, target) for name in _MODELS[:_SMALL] for target in _ENDS),
    *(
        pytest.param(name, target, marks=pytest.mark.exhaustive)
        for number, name in enumerate(_MODELS[_SMALL:])
        for target in (_ENDS if "/hand/" in name else _STRICT[number % 2 :: 2])
    ),
]


def test_what_has_other_forms_is_rewritten_by_the_tables() -> None:
    assert {operator for operator, rule in LOWERINGS.items() if rule.removes} >= REPLACED


@pytest.mark.parametrize(("name", "target"), _CASES)
def test_check_says_what_lower_does(name: str, target: str) -> None:
    path = _FIXTURES / name
    try:
        lowered, _ = kv.lower(path, target=target, verify=False)
    except Refused as refused:
        errors = _errors(path, target)
        assert errors
        if "KV309" in errors.values():
            return  # its opset is too new: what it becomes is refused
        for one in refused.report.refused:
            if one.code == "target-limit":
                is_made = one.location.node is None and "KV308" in errors.values()
                assert is_made or _sources(one.location) & errors.keys(), one.message
    else:
        assert not _errors(lowered, target)


def _errors(model: object, target: str) -> dict[tuple[str | int | None, ...], str]:
    """Return what the rules on targets call an error, by place."""
    return {
        _place(finding.location): finding.code
        for finding in kv.check(model, targets=[target])
        if finding.severity == "error" and finding.code.startswith("KV3")
    }


def _sources(location: Location) -> set[tuple[str | int | None, ...]]:
    """Return the place of a node, and those of the nodes of the source that it may be made of."""
    parts = (location.node or "").split("/")
    names = ["/".join(parts[:count]) for count in range(1, len(parts))]
    return {_place(location), *((location.graph, name) for name in names)}


def _place(location: Location) -> tuple[str | int | None, ...]:
    if location.node is None and location.index is None:
        return (location.graph, location.value)
    return (location.graph, location.node or location.index)
