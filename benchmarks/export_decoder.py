"""Export small decoders: `python -m benchmarks.export_decoder EXPORTER FOLDER ARCHITECTURE ...`.

Run it where the exporter is installed; `benchmarks.architectures` does. Each decoder is exported in
a process of its own, of bounded processor time and memory, and becomes FOLDER/ARCHITECTURE/
model.onnx, or error.txt beside where that would be, with what the exporter says in one line. What
is there is kept.
"""

from __future__ import annotations

import inspect
import os
import resource
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import torch

from tests.exports.decoders import ARCHITECTURES, Crossed, Decoder, model_of
from tests.exports.exporters import dynamo, genai, optimum

_OPSET = 18
_WIDE = {"hidden_size": 96, "head_dim": 16, "partial_rotary_factor": 1.0}
"""GroupQueryAttention turns a multiple of 16 elements of a head only."""

ROLLING = "_rolling"
"""Behind the name of an architecture: its layers with a window keep the last rows alone."""

_SECONDS, _BYTES = 120, 6 << 30


def main(exporter: str, folder: str, *architectures: str) -> None:
    for architecture in architectures:
        home = Path(folder, architecture)
        if (home / "model.onnx").exists() or (home / "error.txt").exists():
            continue
        home.mkdir(parents=True, exist_ok=True)
        child = os.fork()
        if child == 0:
            os._exit(_export(exporter, architecture, home))
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            (home / "error.txt").write_text(f"ended by signal {os.WTERMSIG(status)}")


def _export(exporter: str, architecture: str, home: Path) -> int:
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    resource.setrlimit(resource.RLIMIT_DATA, (_BYTES, _BYTES))
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=home) as directory:
        path = Path(directory, "model.onnx")
        try:
            name = architecture.removesuffix(ROLLING)
            rolls = name != architecture
            model = model_of(name, **_options(exporter, name))
            if exporter == "dynamo":
                taken = inspect.signature(model.forward).parameters
                names = ("input_ids", "attention_mask", "position_ids")
                known = tuple(name for name in names if name in taken)
                if model.config.is_encoder_decoder:
                    model, known = Crossed(model), ("input_ids", "encoder_hidden_states")
                # One name for the rows of all caches would be wrong where some roll.
                dynamo(Decoder(model, known, rolling=rolls), path, _OPSET, is_named=not rolls)
            else:
                {"optimum": optimum, "genai": genai}[exporter](model, path)
        except Exception as error:  # noqa: BLE001  # whatever an exporter raises is its answer
            traceback.print_exc()
            (home / "error.txt").write_text(_line(error).replace(f"{directory}/", ""))
            return 1
        for part in path.parent.glob("*.onnx*"):
            part.rename(home / part.name)
    return 0


def _options(exporter: str, architecture: str) -> dict[str, Any]:
    """Return what an exporter asks of a configuration."""
    sizes = ARCHITECTURES[architecture][1]
    if exporter == "genai":
        return _WIDE if "head_dim" in sizes else {}
    if exporter == "optimum" and architecture == "stablelm":
        return {"qk_layernorm": False}  # transformers 4.57 makes no model with it
    if exporter == "dynamo" and "num_experts_per_tok" in sizes:
        return {"experts_implementation": "batched_mm"}  # the default has no form in ONNX
    return {}


def _line(error: BaseException) -> str:
    """Return what was wrong in one line: what began it says most."""
    while (error.__cause__ or error.__context__) is not None:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    lines = [line for line in str(error).splitlines() if line.strip()]
    told = " ".join(lines[:2] if lines and lines[0].endswith(":") else lines[:1])
    first = " ".join(told.split()).split(". ")[0]
    return f"{type(error).__name__}: {first}"


if __name__ == "__main__":
    main(*sys.argv[1:])
