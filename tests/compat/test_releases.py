"""Releases of runtimes load what `--target` wrote for them, and compute the same.

Run it with `pytest -m compat`; the releases are installed from the package index on first use.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.targets.release import Limit
from onnx_kvtool.targets.target import find_target
from tests.compat.affected import AFFECTED, backend_case, feeds_of, tolerance
from tests.compat.environments import ONLY_LOAD, RuntimeFailed, run_in
from tests.compat.fixtures import FIXTURES, difference, limit_of, lowered_file

pytestmark = pytest.mark.compat

RELEASES: list[tuple[str, str | None]] = [
    ("onnxruntime", "1.15.1"),
    ("onnxruntime", "1.17.3"),
    ("onnxruntime", "1.20.1"),
    ("onnxruntime", "1.23.2"),
    ("onnxruntime", "1.24.4"),
    ("onnxruntime", "1.27.0"),
    ("onnxruntime", "1.32.0"),
    ("openvino", None),
]


LIMITED: list[tuple[str, str | None]] = [
    *RELEASES,
    ("onnxruntime", "1.19.2"),
    ("iree", "3.13.0"),
]
"""Releases whose limits with a model in AFFECTED are tried."""


def named(release: tuple[str, str | None]) -> str:
    return "@".join(part for part in release if part)


@pytest.mark.parametrize("release", RELEASES, ids=named)
@pytest.mark.parametrize("fixture", FIXTURES)
def test_a_fixture_lowered_for_a_release_computes_the_same_in_it(
    fixture: str, release: tuple[str, str | None], tmp_path: Path
) -> None:
    model = lowered_file(fixture, named(release), tmp_path)
    assert difference(fixture, model, *release) <= limit_of(fixture)


def limits(*, affected: bool) -> list:
    """Return releases with their measured limits that have a model in AFFECTED, or have none."""
    return [
        pytest.param(release, limit, id=f"{named(release)}-{limit.name}")
        for release in (LIMITED if affected else RELEASES)
        for limit in find_target(named(release)).release.limits
        if limit.evidence == "measured" and (limit.name in AFFECTED) == affected
    ]


def readable(source: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model as onnx.reference can run it.

    The body of MeanVarianceNormalization has constants of float, which it adds to no float16: the
    operator is computed in float between the same Casts.
    """
    if all(node.op_type != "MeanVarianceNormalization" for node in source.graph.node):
        return source
    wide = onnx.ModelProto()
    wide.CopyFrom(source)
    for node in wide.graph.node:
        if node.op_type == "Cast":
            node.attribute[0].i = onnx.TensorProto.FLOAT
    return wide


def equals_reference(
    source: onnx.ModelProto, model: bytes, release: tuple[str, str | None], directory: Path
) -> bool:
    """Run a model in a release; return whether it gives what onnx.reference gives for `source`."""
    path = directory / "model.onnx"
    path.write_bytes(model)
    feeds = feeds_of(source)
    expected = ReferenceEvaluator(readable(source)).run(None, feeds)
    actual = run_in(*release, path, feeds)
    return all(
        a.shape == e.shape and np.allclose(a, e, rtol=0, atol=tolerance(source))
        for a, e in zip(actual, expected, strict=True)
    )


@pytest.mark.parametrize(("release", "limit"), limits(affected=False))
def test_an_operator_without_a_kernel_is_replaced_or_refused(
    release: tuple[str, str | None], limit: Limit, tmp_path: Path
) -> None:
    assert limit.when == "always", "a limit with a condition needs a model in AFFECTED"
    target = find_target(named(release))
    source = backend_case(limit, target.release)
    path = tmp_path / "model.onnx"
    path.write_bytes(source.SerializeToString())
    with pytest.raises(RuntimeFailed, match=r"NOT_IMPLEMENTED|openvino\.ai|No conversion rule"):
        run_in(*release, path, ONLY_LOAD)

    try:
        model, _ = lower(ir.from_proto(source), target=named(release), verify=False)
    except Refused as refused:
        codes = {refusal.code for refusal in refused.report.refused}
        # A rule may say itself what it cannot write: bins that depend on what comes at run time.
        assert codes in ({"target-limit"}, {"dynamic-input"})
        assert not limit.lower_opset
        return
    path.write_bytes(serialize(model))
    run_in(*release, path, ONLY_LOAD)


@pytest.mark.parametrize(("release", "limit"), limits(affected=True))
def test_what_a_limit_strikes_is_wrong_before_and_right_after(
    release: tuple[str, str | None], limit: Limit, tmp_path: Path
) -> None:
    source = AFFECTED[limit.name]()
    try:
        right = equals_reference(source, source.SerializeToString(), release, tmp_path)
    except RuntimeFailed:
        right = False
    assert not right, "the release has no such limit"

    model, _ = lower(ir.from_proto(source), target=named(release), verify=False)
    assert equals_reference(source, serialize(model), release, tmp_path)


def test_a_model_that_a_release_cannot_load_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(RuntimeFailed):
        run_in("onnxruntime", "1.17.3", tmp_path / "broken.onnx", {})
