"""Large models: the weights stay on disk and the memory stays small."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from benchmarks.decoders import decoder

_MEASURE = """
import json, resource, sys
from onnx_kvtool.cli import main
sys.argv[1:] = ["lower", sys.argv[1], "--format", "json"]
try:
    main()
except SystemExit as end:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"code": end.code, "megabytes": peak / 1024}), file=sys.stderr)
"""


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
    assert report["verification"]["status"] == "skipped"
    assert "more than 512 MiB" in report["verification"]["detail"]
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
