"""`kvtool ops` prints what is known of operators, as data on standard output."""

from __future__ import annotations

import json

import pytest

from onnx_kvtool.commands.ops import run
from onnx_kvtool.commands.requests import OpsRequest


def test_json_has_the_keys_of_the_page(kvtool) -> None:
    result = kvtool("ops", "TensorScatter", "--format", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    answer = json.loads(result.stdout)
    assert (answer["schema_version"], answer["command"]) == (1, "ops")
    (entry,) = answer["operators"]
    assert list(entry) == [
        "op",
        "versions",
        "function_body",
        "kernels",
        "lowerings",
        "upgrades",
        "raisings",
        "rules",
        "limits",
    ]
    assert entry["lowerings"] == [
        {"rule": "tensor_scatter", "below": 24, "reads": 24, "removes": True}
    ]


def test_text_about_one_operator_names_everything(kvtool) -> None:
    result = kvtool("ops", "ScatterElements")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[:2] == ["operator: ScatterElements", "versions: 11, 13, 16, 18"]
    assert "kernels: version 11 to 15, 16 to 17, 18 on; may write into `data`" in lines
    labels = [line.partition(":")[0] for line in lines if not line.startswith(" ")]
    assert labels == [
        "operator",
        "versions",
        "function body",
        "kernels",
        "lowerings",
        "upgrades",
        "raisings",
        "rules",
        "limits",
    ]


def test_what_there_is_not_is_a_dash(kvtool) -> None:
    lines = kvtool("ops", "Neg").stdout.splitlines()
    assert lines[-6:] == [
        "kernels: version 6 on",
        "lowerings: -",
        "upgrades: -",
        "raisings: -",
        "rules: -",
        "limits: -",
    ]


def test_releases_stand_as_a_range_only_where_none_between_them_is_free(kvtool) -> None:
    lines = kvtool("ops", "TensorScatter").stdout.splitlines()
    rows = {line.split()[0]: line for line in lines if " onnxruntime " in line}
    assert " 1.25.1 to " in rows["tensor-scatter-types"]


@pytest.mark.long
def test_a_line_for_each_operator_under_a_header(kvtool) -> None:
    result = kvtool("ops")
    assert (result.exit_code, result.stderr) == (0, "")
    header, *lines = result.stdout.splitlines()
    assert header.split() == [
        "operator", "versions", "kernel", "lowering", "upgrade", "raising", "rules", "limits"
    ]  # fmt: skip
    listed = [operator.op for operator in run(OpsRequest()).operators]
    assert [line.split()[0] for line in lines] == listed


def test_an_unknown_operator_is_wrong_usage_with_the_nearest_one(kvtool) -> None:
    result = kvtool("ops", "Atention")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "kvtool: error: `Atention` is no operator of the default domain\n"
        "  help: did you mean `Attention`?\n"
    )
