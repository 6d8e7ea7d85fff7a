"""The fixtures lowered for each known release and run in it; writes docs/compatibility.md.

`python -m benchmarks compatibility` runs it.

Every release of onnxruntime that `kvtool targets` lists, and of OpenVINO, is installed from the
package index into an environment of its own (`KVTOOL_COMPAT_CACHE` says where; about 3 GB). Each
fixture is lowered with `--target` for the release, loaded and run there on its recorded inputs, and
the outputs are compared with the recorded ones.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.targets.target import Release, releases
from tests.compat.environments import RuntimeFailed
from tests.compat.fixtures import FIXTURES, difference, limit_of, lowered_file

_PAGE = Path(__file__).resolve().parent.parent / "docs" / "compatibility.md"

_HEAD = """\
# Compatibility

The models of `fixtures/models`, lowered with `kvtool lower --target RUNTIME@VERSION`, loaded and
run in that release (CPU). Each number is the largest difference of any output from the
native model in onnxruntime 1.31.1; 1e-5 is allowed for float32 and 5e-3 for `fp16`. Written by
`python -m benchmarks compatibility`.

"""

_FOOT = """
OpenVINO runs with `INFERENCE_PRECISION_HINT=f32`; its default on processors with bfloat16 units is
bfloat16. TensorRT is not run; what is known of it comes from its documentation, see
[targets](targets/index.md).
"""


def write() -> int:
    """Write the page; return 1 if a cell is wrong, else 0."""
    lines = [
        "| release | opset, IR version | " + " | ".join(f"`{f}`" for f in FIXTURES) + " |",
        "| --- | --- |" + " --- |" * len(FIXTURES),
    ]
    wrong = 0
    for release in releases():
        if release.runtime == "tensorrt":
            continue
        form = ""
        cells: list[tuple[str, bool]] = []
        for fixture in FIXTURES:
            form, text, right = _cell(fixture, release)
            cells.append((text, right))
        wrong += sum(not right for _, right in cells)
        texts = [text if right else f"**{text}**" for text, right in cells]
        lines.append(f"| {release} | {form} | {' | '.join(texts)} |")
        print(lines[-1], flush=True)
    _PAGE.write_text(_HEAD + "\n".join(lines) + "\n" + _FOOT, encoding="utf-8")
    return 1 if wrong else 0


def _cell(fixture: str, release: Release) -> tuple[str, str, bool]:
    """Lower and run a fixture.

    Returns:
        Opset and IR version of the result; the largest difference, or why there is none; whether
        the cell is right.
    """
    form = "-"
    with tempfile.TemporaryDirectory() as directory:
        try:
            model = lowered_file(fixture, f"{release.runtime}@{release.version}", Path(directory))
            form = _form(model)
            largest = difference(fixture, model, release.runtime, release.version)
        except (KvtoolError, RuntimeFailed, AssertionError) as error:
            return form, f"{type(error).__name__}: {str(error).replace('|', ' ')[:160]}", False
    return form, f"{largest:.1e}" if largest else "0", largest <= limit_of(fixture)


def _form(path: Path) -> str:
    model = onnx.load(path)
    (opset,) = (o.version for o in model.opset_import if o.domain == "")
    return f"{opset}, {model.ir_version}"
