"""The fixtures lowered for each known release and run in it; writes docs/compatibility.md.

`python -m benchmarks compatibility` runs it.

Every release that `kvtool targets` lists as measured is installed from its index into an
environment of its own (`KVTOOL_COMPAT_CACHE` says where; about 6 GB). Each decoder is lowered with
`--target` for the release, fed a prompt and a step there, of one sequence and of two, and the
outputs are compared with those of the decoder as it is. Where the release cannot be given any
sizes, as the refusal says, the sizes are fixed by `--dim`. `benchmarks/compatibility.json` keeps
what was found, release by release; the page is made of it.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import onnx

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.targets.target import Release, releases
from tests.compat.decoders import DECODERS, STEPS, allowed, apart, lowered, steps
from tests.compat.environments import RuntimeFailed

__all__ = ["page", "write"]

STORE = Path(__file__).with_name("compatibility.json")
_PAGE = Path(__file__).resolve().parent.parent / "docs" / "compatibility.md"
_BATCHES = (1, 2)

_HEAD = """\
# Compatibility

Models of `fixtures`, lowered with `kvtool lower --target RUNTIME@VERSION`, loaded and run in that
release (CPU): decoders that were written with fixed caches (native), that have them from `kvtool
raise` (raised), and a model of onnxruntime-genai (genai). Each pair of numbers is the largest
difference of any output from the model as it is, in the onnxruntime beside kvtool: in a prompt of
four tokens, and in the step after it, of batches of one and two sequences. 5e-05 is allowed for
float32 and 1e-02 for fp16. `--dim` means that the release takes the model only with fixed sizes, as
the refusal says; *refused* that `kvtool lower` refuses it, with the reason below. Written by
`python -m benchmarks compatibility`, from `benchmarks/compatibility.json`.

"""

_FOOT = """
OpenVINO runs with `INFERENCE_PRECISION_HINT=f32`; its default on processors with bfloat16 units is
bfloat16. tinygrad compiles kernels as they are (`NOOPT=1`). TensorRT is not run; what is known of
it comes from its documentation, see [targets](targets/index.md). A release that is not in the
table has not been measured in this form.
"""


def write(names: list[str] | None = None) -> int:
    """Measure, and write the page; return 1 if a cell is wrong, else 0.

    Args:
        names: Releases to measure anew, as `runtime version`; None for all.
    """
    found = json.loads(STORE.read_text(encoding="utf-8")) if names and STORE.exists() else {}
    for release in _measured():
        if names is None or str(release) in names:
            found[str(release)] = {decoder: _cell(decoder, release) for decoder in DECODERS}
            print(str(release), *map(_text, found[str(release)].values()), sep=" | ", flush=True)
            STORE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    _PAGE.write_text(page(found), encoding="utf-8")
    return int(any("wrong" in cell for row in found.values() for cell in row.values()))


def page(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Return the page of what was found: by release and decoder, a cell as `_cell` gives it."""
    lines = [
        "| release | " + " | ".join(DECODERS) + " |",
        "| --- |" + " --- |" * len(DECODERS),
    ]
    rows = {str(release): found[str(release)] for release in _measured() if str(release) in found}
    for name, row in rows.items():
        lines.append(f"| {name} | {' | '.join(_text(row[decoder]) for decoder in DECODERS)} |")
    reasons = [
        f"- {name}, {decoder}: {cell['refused']}."
        for name, row in rows.items()
        for decoder, cell in row.items()
        if "refused" in cell
    ]
    refusals = ["", "## Refused", "", *reasons] if reasons else []
    return _HEAD + "\n".join([*lines, *refusals]) + "\n" + _FOOT


def _measured() -> list[Release]:
    return [one for one in releases() if one.evidence == "measured" and not one.unsupported]


def _text(cell: dict[str, Any]) -> str:
    if "refused" in cell:
        return "*refused*"
    if "wrong" in cell:
        return f"**{cell['wrong']}**"
    numbers = (max(cell[step].values()) for step in STEPS)
    text = ", ".join(f"{number:.1e}" if number else "0" for number in numbers)
    return f"{text} (`--dim`)" if cell["fixed"] else text


def _cell(decoder: str, release: Release) -> dict[str, Any]:
    """Lower and run a decoder.

    Returns:
        `opset`, whether sizes are `fixed`, and for each step the largest difference by batch; or
        why the decoder is `refused`, or what is `wrong`.
    """
    target = f"{release.runtime}@{release.version}"
    cell: dict[str, Any] = {"fixed": False, **{step: {} for step in STEPS}}
    with tempfile.TemporaryDirectory() as directory:
        try:
            whole = Path(directory, "model.onnx")
            try:
                lowered(decoder, target, None, whole)
            except Refused as refused:
                if "--dim" not in (refused.report.refused[0].help or ""):
                    return {"refused": refused.report.refused[0].message}
                cell["fixed"] = True
            for batch in _BATCHES:
                for step, fed in zip(STEPS, steps(decoder, batch), strict=True):
                    path = whole
                    if cell["fixed"]:
                        path = Path(directory, f"{step}{batch}.onnx")
                        lowered(decoder, target, fed[0], path)
                    cell["opset"] = _opset(path)
                    number = apart(decoder, release.runtime, release.version, path, fed)
                    cell[step][str(batch)] = number
                    if number > allowed(decoder):
                        return {"wrong": f"{step}, batch {batch}: {number:.1e}"}
        except Refused as refused:
            return {"refused": refused.report.refused[0].message}
        except (KvtoolError, RuntimeFailed, AssertionError, subprocess.TimeoutExpired) as error:
            text = " ".join(str(error).replace("|", " ").split())
            return {"wrong": f"{type(error).__name__}: {text[:120]}"}
    return cell


def _opset(path: Path) -> int:
    return next(o.version for o in onnx.load(path).opset_import if o.domain == "")
