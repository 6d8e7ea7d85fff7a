"""`kvtool ops` tells what the tables hold, of one operator or of all that a table names."""

from __future__ import annotations

import dataclasses
import json

import pytest

from onnx_kvtool.commands.ops import Operator, run
from onnx_kvtool.commands.requests import OpsRequest
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.lint.rule import RULES
from onnx_kvtool.rewrite.lowering.early.steps import STEPS
from onnx_kvtool.rewrite.lowering.table import LOWERINGS
from onnx_kvtool.rewrite.raising.raisings import RAISINGS
from onnx_kvtool.rewrite.upgrading.upgrades import UPGRADES
from onnx_kvtool.runtime.kernels.table import KERNELS
from onnx_kvtool.targets.releases import releases
from tests.grids import each


def about(op: str) -> Operator:
    (operator,) = run(OpsRequest(op)).operators
    return operator


@each(
    ("op", "facts"),
    [
        pytest.param(
            "TensorScatter",
            {
                "versions": [24],
                "function_body": False,
                "kernels": [(24, "past_cache")],
                "lowerings": [("tensor_scatter", 24, 24, True)],
                "upgrades": [],
                "raisings": ["concat", "one_hot_sum", "scatter_elements", "scatter_nd", "where"],
                "rules": [f"KV{number:03}" for number in range(1, 14)],
            },
            id="every raising ends in TensorScatter",
        ),
        pytest.param(
            "ScatterND",
            {
                "versions": [11, 13, 16, 18],
                "function_body": False,
                "kernels": [(11, "data"), (18, "data")],
                "lowerings": [("scatter_reduction", 18, 16, False), ("scatter_nd", 11, 11, False)],
                "upgrades": [],
                "raisings": ["scatter_nd"],
                "rules": ["KV201", "KV203", "KV204", "KV206"],
            },
            id="a scatter has only the raising that reads it",
        ),
        pytest.param(
            "Upsample",
            {
                "versions": [1, 7, 9, 10],
                "function_body": False,
                "kernels": [(1, None), (7, None)],
                "lowerings": [],
                "upgrades": [("upsample", (9, 10))],
                "raisings": [],
                "rules": [],
            },
            id="an operator that is gone",
        ),
        pytest.param(
            "ImageDecoder",
            {
                "versions": [20],
                "function_body": False,
                "kernels": [],
                "lowerings": [],
                "upgrades": [],
                "raisings": [],
                "rules": [],
            },
            id="an operator of which kvtool has nothing of its own",
        ),
    ],
)
def test_one_operator(op: str, facts: dict[str, object]) -> None:
    operator = about(op)
    assert operator.op == op
    assert {
        "versions": [version.since for version in operator.versions],
        "function_body": operator.function_body,
        "kernels": [dataclasses.astuple(kernel) for kernel in operator.kernels],
        "lowerings": [dataclasses.astuple(lowering) for lowering in operator.lowerings],
        "upgrades": [dataclasses.astuple(upgrade) for upgrade in operator.upgrades],
        "raisings": sorted(raising.pattern for raising in operator.raisings),
        "rules": [rule.code for rule in operator.rules],
    } == facts


def test_a_function_body_of_the_newest_version_counts() -> None:
    assert about("Attention").function_body


def test_a_version_has_the_signature_of_the_schema() -> None:
    (version,) = about("TensorScatter").versions
    inputs = [(one.name, one.optional, one.variadic) for one in version.inputs]
    assert inputs == [
        ("past_cache", False, False),
        ("update", False, False),
        ("write_indices", True, False),
    ]
    assert [one.name for one in version.outputs] == ["present_cache"]
    attributes = [dataclasses.astuple(one) for one in version.attributes]
    assert attributes == [("axis", False, -2), ("mode", False, "linear")]


def test_the_limits_are_those_of_the_releases() -> None:
    told = {
        (limit.runtime, version, limit.name, limit.reason)
        for limit in about("Attention").limits
        for version in limit.versions
    }
    assert told == {
        (release.runtime, release.version, limit.name, limit.reason)
        for release in releases()
        for limit in release.limits
        if limit.operator == "Attention"
    }
    assert told


def test_without_an_operator_all_are_listed_that_a_table_names() -> None:
    report = run(OpsRequest())
    listed = [operator.op for operator in report.operators]
    assert listed == sorted(listed)
    of_rules = {op for rule in RULES.values() for op in rule.operators}
    # Rules about contrib operators name them with their domain.
    of_rules = {op for op in of_rules if "::" not in op}
    assert set(listed) == {
        "TensorScatter", *KERNELS, *LOWERINGS, *STEPS[10], *STEPS[9], *UPGRADES, *RAISINGS,
        *of_rules,
    }  # fmt: skip


@each(
    ("name", "help"),
    [
        pytest.param("TensorScater", "did you mean `TensorScatter`?", id="a slip"),
        pytest.param("tensorscatter", "did you mean `TensorScatter`?", id="another case"),
        pytest.param(
            "com.microsoft::GroupQueryAttention",
            "it belongs to `com.microsoft`; `kvtool inspect` finds the caches that it updates",
            id="an operator of another domain that is known to update caches",
        ),
        pytest.param("", None, id="no name"),
        pytest.param("Zzyzx", None, id="a name that resembles none"),
    ],
)
def test_an_unknown_operator_is_wrong_usage(name: str, help: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        run(OpsRequest(name))
    assert caught.value.message == f"`{name}` is no operator of the default domain"
    assert caught.value.help == help


@pytest.mark.long
def test_every_operator_can_be_written_as_json() -> None:
    report = run(OpsRequest())
    entries = json.loads(json.dumps(report.to_json(), allow_nan=False))["operators"]
    assert [entry["op"] for entry in entries] == [operator.op for operator in report.operators]
