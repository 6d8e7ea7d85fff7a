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

import argparse
import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any

import onnx

from benchmarks import architectures
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.targets.release import Release
from onnx_kvtool.targets.releases import releases
from tests.compat.decoders import DECODERS, GROUPS, STEPS, allowed, comparing
from tests.compat.environments import RuntimeFailed
from tests.compat.forms import forms

__all__ = ["page", "write", "write_page"]

STORE = Path(__file__).with_name("compatibility.json")
_PAGE = Path(__file__).resolve().parent.parent / "docs" / "compatibility.md"

Cell = dict[str, Any]
"""What `_cell` found."""

Found = dict[str, dict[str, Cell]]
"""Cells by release and decoder."""

_HEAD = """\
# Compatibility

Decoders of `fixtures`, and small ones of `benchmarks/real_models` with weights of 4 bits, lowered
with `kvtool lower --target RUNTIME@VERSION`, loaded and run in that release (CPU): some were
written with fixed caches (native), the others have them from `kvtool raise`. Each pair of numbers
is the largest difference of any output from the model as it is, in the onnxruntime beside kvtool:
in a prompt of four tokens, and in the step after it, of batches of one and two sequences. 5e-05 is
allowed for float32, and 1e-02 for fp16 and where the model, or a default of onnxruntime, lets
products with weights of 4 bits be taken in 8 bits. `--dim` means that the release takes the model
only with fixed sizes, as the refusal says: `kvtool raise --static` wrote it where that is possible.
*Refused* means that `kvtool lower` refuses the model, with the reason below; `-` that it was not
measured. Written by `python -m benchmarks compatibility`, from `benchmarks/compatibility.json`;
`python -m benchmarks.compatibility --missing [RELEASE ...]` adds to it.
"""

_FOOT = """
OpenVINO runs with `INFERENCE_PRECISION_HINT=f32`; its default on processors with bfloat16 units is
bfloat16. tinygrad compiles kernels as they are (`NOOPT=1`). OpenCV gives float32 for fp16, and no
array for an output without elements. TensorRT is not run; what is known of it comes from its
documentation, see [targets](targets/index.md). A release that is not in the table has not been
measured in this form.
"""


def write(names: Collection[str] = (), *, missing: bool = False) -> int:
    """Measure, and write the page; return 1 if a cell is wrong, else 0.

    Args:
        names: Releases to measure anew, as `runtime version`; all if there is none.
        missing: Whether cells that were measured are kept.
    """
    for release in _measured():
        if names and str(release) not in names:
            continue
        for decoder in DECODERS:
            if missing and decoder in _kept().get(str(release), {}):
                continue
            cell = _cell(decoder, release)
            print(release, decoder, _text(cell), sep=" | ", flush=True)
            _keep(str(release), decoder, cell)
    write_page()
    return int(any("wrong" in cell for row in _kept().values() for cell in row.values()))


def write_page() -> None:
    """Write docs/compatibility.md, of what was measured here and by `architectures`."""
    _PAGE.write_text(page(_kept()), encoding="utf-8")


def _kept() -> Found:
    return json.loads(STORE.read_text(encoding="utf-8")) if STORE.exists() else {}


def _keep(release: str, decoder: str, cell: Cell) -> None:
    """Put a cell into the store, from which those of decoders that are gone are dropped."""
    found = _kept()
    row = {**found.get(release, {}), decoder: cell}
    found[release] = {name: row[name] for name in DECODERS if name in row}
    new = STORE.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    new.replace(STORE)


def page(found: Found) -> str:
    """Return the page of what was found."""
    names = [str(release) for release in _measured() if str(release) in found]
    parts = [_HEAD]
    for group, members in GROUPS.items():
        lines = [
            f"## {group}",
            "",
            "| release | " + " | ".join(members) + " |",
            "| --- |" + " --- |" * len(members),
        ]
        for name in names:
            cells = (found[name].get(f"{member}, {group}") for member in members)
            lines.append(f"| {name} | {' | '.join(map(_text, cells))} |")
        parts.append("\n".join([*lines, ""]))
    reasons: dict[str, list[str]] = defaultdict(list)
    for name in names:
        for decoder, cell in found[name].items():
            if "refused" in cell:
                reasons[f"{name}: {cell['refused']}"].append(decoder)
    lines = [f"- {reason}. ({'; '.join(whose)})" for reason, whose in reasons.items()]
    parts.append("\n".join(["## Refused", "", *lines]) + "\n")
    return "\n".join([*parts, _FOOT, architectures.section()])


def _measured() -> list[Release]:
    return [one for one in releases() if one.evidence == "measured" and not one.unsupported]


def _text(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    if "refused" in cell:
        return "*refused*"
    if "wrong" in cell:
        return f"**{cell['wrong']}**"
    numbers = (max(cell[step].values()) for step in STEPS)
    text = ", ".join(f"{number:.1e}" if number else "0" for number in numbers)
    return f"{text} (`--dim`)" if cell["fixed"] else text


def _cell(decoder: str, release: Release) -> Cell:
    """Lower and run a decoder.

    Returns:
        `opset`, whether sizes are `fixed`, and for each step the largest difference by batch; or
        why the decoder is `refused`, or what is `wrong`.
    """
    target = f"{release.runtime}@{release.version}"
    cell: Cell = {"fixed": False, **{step: {} for step in STEPS}}
    with tempfile.TemporaryDirectory() as directory:
        try:
            for form in forms(decoder, target, Path(directory)):
                cell["fixed"], cell["opset"] = form.fixed, _opset(form.path)
                with comparing(release.runtime, release.version, form.path) as apart:
                    for step, batch, fed in form.runs:
                        number = apart(fed)
                        cell[step][str(batch)] = number
                        if number > allowed(decoder):
                            return {"wrong": f"{step}, batch {batch}: {number:.1e}"}
        except Refused as refused:
            return {"refused": refused.report.refused[0].message}
        except (KvtoolError, RuntimeFailed, AssertionError) as error:
            text = " ".join(str(error).replace("|", " ").split())
            return {"wrong": f"{type(error).__name__}: {text[:120]}"}
    return cell


def _opset(path: Path) -> int:
    return next(o.version for o in onnx.load(path).opset_import if o.domain == "")


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the fixtures in each known release.")
    parser.add_argument(
        "releases", metavar="RELEASE", nargs="*", help="`tract 0.23.9`; default: all"
    )
    parser.add_argument("--missing", action="store_true", help="keep the cells that were measured")
    chosen = parser.parse_args()
    return write(chosen.releases, missing=chosen.missing)


if __name__ == "__main__":
    sys.exit(main())
