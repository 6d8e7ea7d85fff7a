"""Large models: the weights stay on disk and the memory stays small."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from benchmarks.decoders import decoder
from onnx_kvtool.lint.facts import misuse
from onnx_kvtool.model_io.model import clone
from onnx_kvtool.ops import legality
from onnx_kvtool.ops.legality import Problem
from onnx_kvtool.rewrite.engine import guards
from onnx_kvtool.rewrite.verify import Verifier

_MEASURE = """
import json, resource, sys
from pathlib import Path
from onnx_kvtool.cli import main

def peak_kilobytes():
    # The peak that `getrusage` gives begins with that of the process which started this one.
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1])

sys.argv[1:] = ["lower", *sys.argv[1:], "--format", "json"]
try:
    main()
except SystemExit as end:
    print(json.dumps({"code": end.code, "megabytes": peak_kilobytes() / 1024}), file=sys.stderr)
"""


def widened(proto: onnx.ModelProto, factor: int, data: Path) -> onnx.ModelProto:
    """Return a decoder with all its widths multiplied, and its weights in a sparse file."""
    offset = 0
    for tensor in proto.graph.initializer:
        dims = list(tensor.dims)
        if tensor.name.endswith(".weight"):
            dims = [size * factor for size in dims]
        elif tensor.name.endswith("_cache"):
            dims[-1] *= factor
        tensor.ClearField("raw_data")
        tensor.dims[:] = dims
        length = 4 * math.prod(dims)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, entry in (("location", data.name), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(entry))
        offset += length
    with open(data, "wb") as file:
        file.truncate(offset)
    for value in (*proto.graph.input, *proto.graph.output):
        last = value.type.tensor_type.shape.dim[-1]
        if last.HasField("dim_value"):
            last.dim_value *= factor
    return proto


@pytest.mark.slow
def test_a_gigabyte_of_weights_is_verified_on_small_copies(tmp_path: Path) -> None:
    path = tmp_path / "decoder.onnx"
    onnx.save(widened(decoder(4), 64, tmp_path / "weights.data"), path)
    assert os.stat(tmp_path / "weights.data").st_size > 1 << 30

    lowered, report = kv.lower(path)

    assert report.verification.status == "equal"
    assert "24 of 4,096 widths" in (report.verification.detail or "")
    assert os.stat(tmp_path / "weights.data").st_blocks == 0
    wrong = clone(lowered)
    key, value = (
        next(node for node in wrong.graph if node.outputs[0].name == f"present.3.{kind}")
        for kind in ("key", "value")
    )
    value.replace_input_with(2, key.inputs[2])
    found = Verifier(kv.load(path)).compare(wrong)
    assert found.status == "different"
    assert "output `present.3.value` at [0, 0, 0] is " in (found.detail or "")


@pytest.mark.slow
def test_three_gigabytes_of_weights_are_not_read(tmp_path: Path) -> None:
    """Under 400 MB at the peak; no block of the sparse file is touched or copied."""
    data = tmp_path / "weights.data"
    model = tmp_path / "decoder.onnx"
    onnx.save(decoder(16, data_file=data, weight_bytes=3 << 30), model)
    command = [sys.executable, "-c", _MEASURE, str(model)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    end = json.loads(done.stderr.splitlines()[-1])
    assert end["code"] == 0, done.stderr
    assert end["megabytes"] < 400
    report = json.loads(done.stdout)
    assert report["verification"]["status"] == "equal"
    assert "verified on copies with 4 of 30 blocks" in report["verification"]["detail"]
    assert os.stat(data).st_blocks == 0
    lowered = onnx.load(report["output"], load_external_data=False)
    locations = {
        entry.value
        for tensor in lowered.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
    assert locations == {"weights.data"}
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "decoder.onnx",
        "decoder.opset18.onnx",
        "weights.data",
    ]


@pytest.fixture(name="walks")
def _walks(monkeypatch: pytest.MonkeyPatch) -> list[ir.Graph]:
    """Graphs of more than a hundred nodes, once for each time that their nodes are gone through."""
    walks: list[ir.Graph] = []
    inherited = ir.Graph.__iter__

    def iterate(graph: ir.Graph) -> Iterator[ir.Node]:
        if len(graph) > 100:
            walks.append(graph)
        return inherited(graph)

    monkeypatch.setattr(ir.Graph, "__iter__", iterate)
    return walks


def _many_nodes(tmp_path: Path) -> Path:
    path = tmp_path / "decoder.onnx"
    onnx.save(decoder(2, filler=200), path)
    return path


@pytest.mark.long
def test_rules_share_their_walks(tmp_path: Path, walks: list[ir.Graph]) -> None:
    """A hundred rules go through the nodes a dozen times together: most look at few of them."""
    report = kv.check(_many_nodes(tmp_path))
    assert [finding.code for finding in report] == ["MD401"]
    assert 0 < len(walks) <= 12


@pytest.mark.long
def test_a_lowering_walks_a_fixed_number_of_times(tmp_path: Path, walks: list[ir.Graph]) -> None:
    kv.lower(_many_nodes(tmp_path), verify=False)
    assert 0 < len(walks) <= 30


@pytest.mark.long
def test_nodes_that_are_alike_are_examined_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examined: list[str] = []

    def examine(node: ir.Node, opset: int) -> Iterator[Problem]:
        examined.append(node.op_type)
        return legality.examine(node, opset)

    monkeypatch.setattr(misuse, "examine", examine)
    monkeypatch.setattr(guards, "examine", examine)
    path = _many_nodes(tmp_path)
    kv.check(path)
    assert examined.count("Neg") == examined.count("Relu") == 1
    assert examined.count("MatMul") == 1
    del examined[:]
    kv.lower(path, verify=False)
    # With types that are known and with types that are not, as a lowering infers what it needs; and
    # where a rule emits it.
    assert 0 < examined.count("Neg") <= 3
    assert 0 < examined.count("Relu") <= 3


@pytest.mark.exhaustive
def test_the_collector_frees_models_of_a_long_check(tmp_path: Path) -> None:
    """The command line raises the threshold of the collector; models are dropped all the same."""
    for number in range(12):
        onnx.save(decoder(8, filler=250), tmp_path / f"decoder{number}.onnx")
    code = """
        import gc, sys
        from onnx_kvtool.cli import main
        sys.argv[1:] = ["check", "--isolated", "--exit-zero", sys.argv[1]]
        gc.freeze = lambda: print(gc.get_stats()[0]["collections"], len(gc.get_objects()))
        main()
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    collections, objects = map(int, done.stdout.splitlines()[-1].split())
    assert 0 < collections < 100  # some before kvtool is there, at a threshold of 700
    assert objects < 700_000
