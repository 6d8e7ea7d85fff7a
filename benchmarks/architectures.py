"""Small decoders of many architectures, as each exporter writes them, taken through kvtool.

`python -m benchmarks architectures [NAME ...]` runs it, and writes a section of
docs/compatibility.md. The exporters get environments of their own (`KVTOOL_COMPAT_CACHE` says
where), and what they write stays there. Each decoder is raised to caches of 64 rows, made static,
and lowered; each result is fed a prompt and three tokens, and compared with the exported model.
`benchmarks/architectures.json` keeps what was found, decoder by decoder: what is there is not
measured again. Each step runs in a process of its own, of bounded processor time and memory.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import tempfile
import traceback
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.runtime.onnxruntime import Session
from tests.compat.decoders import fitting
from tests.compat.environments import RuntimeFailed, environment, running
from tests.growing_models import Arrays, Conversation, Host, conversation

__all__ = [
    "ARCHITECTURES",
    "COLUMNS",
    "EXPORTERS",
    "Found",
    "apart",
    "bounded",
    "found",
    "measure",
    "section",
]

_STORE = Path(__file__).with_name("architectures.json")
_ROOT = Path(__file__).resolve().parents[1]

_TORCH = ("torch==2.13.0", "onnx==1.23.2", "onnxruntime==1.32.0")
EXPORTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "optimum": (
        "optimum 2.1.0 with transformers 4.57",
        (*_TORCH, "transformers==4.57.6", "optimum-onnx==0.1.0", "accelerate==1.15.0"),
    ),
    "dynamo": (
        "torch.onnx.export of torch 2.13 with transformers 5.24, opset 18",
        (*_TORCH, "transformers==5.24.0", "onnxscript==0.7.2"),
    ),
    "genai": (
        "the model builder of onnxruntime-genai 0.18 with transformers 5.24",
        (*_TORCH, "transformers==5.24.0", "onnxruntime-genai==0.18.0"),
    ),
}
"""What each is called, and what it needs."""

ARCHITECTURES = (
    "arcee", "bart", "bloom", "codegen", "cohere", "cohere2", "cohere2_rolling", "deepseek_v2",
    "deepseek_v3", "diffllama", "doge", "ernie4_5", "exaone4", "exaone4_rolling", "falcon",
    "falcon_alibi", "gemma", "gemma2", "gemma3", "gemma3_rolling", "glm", "glm4", "gpt2",
    "gpt_bigcode", "gpt_neo", "gpt_neox", "gpt_oss", "gptj", "granite", "granitemoe", "helium",
    "hunyuan_v1_dense", "llama", "marian", "mistral", "mistral_full", "mixtral", "mpt", "nemotron",
    "olmo", "olmo2", "olmo3", "olmoe", "opt", "persimmon", "phi", "phi3", "phimoe", "qwen2",
    "qwen2_moe", "qwen3", "qwen3_moe", "smollm3", "stablelm", "starcoder2", "t5", "whisper",
)  # fmt: skip
"""Those of `tests.exports.decoders`, which needs torch; `_rolling` keeps the rows of a window."""

_RUNTIMES = {
    "onnxruntime 1.17": ("onnxruntime", "1.17.3"),
    "OpenVINO": ("openvino", "2026.4.1"),
    "tract": ("tract", "0.23.9"),
}
_ABOUT = """\
## Architectures

Small decoders of transformers with random weights, as each exporter writes them. *raise* is
`kvtool raise --capacity 64`; *static* is the same with `--static`, for one token of one sequence;
*lower 13* is `kvtool lower --opset 13` of the raised model; the runtimes load what
`kvtool lower --target` writes. *Proven* means that a prompt of four tokens and three steps, or
seven single tokens, give the logits and caches of the exported model in the onnxruntime beside
kvtool (one of two sequences is padded if the decoder has a mask). `--dim` means that the release
takes the static form only, and `--assume` that this was granted. The windowed layers of *rolling*
decoders keep the rows of the window only. optimum merges t5 and whisper. *Growing* means that
`kvtool raise` refuses the model, and the model was lowered as it is. Other words are the codes of
refusals, explained below the tables. What an exporter does not export stands below its table, with
its own error; what is in no table has not been measured. Written by
`python -m benchmarks architectures`, from `benchmarks/architectures.json`.
"""

COLUMNS = ("raise", "static", "lower 13", *_RUNTIMES)

_CAPACITY, _LIMIT = 64, 1e-4
_SECONDS, _BYTES = 120, 6 << 30

_WIDTHS = {"kv_cache_dim": 16, "past_sliding_length": 6}
"""What genai calls the width of a head, and the rows of a window: its models have no numbers."""

_STATES = 9
"""Rows that an encoder has found."""

_GIVEN = {
    **_WIDTHS, "total_sequence_length": _CAPACITY, "total": _CAPACITY, "memory": _STATES,
}  # fmt: skip
"""Sizes that `--static` asks for: the columns of a mask whose declaration is no sum."""

_HOLDS = ("covers-past:attention_mask",)
"""What is granted where a static form needs it: masks that are fed are as long as all tokens."""

_TOKENS = ("input_ids", "position_ids")
"""Inputs with an element for each new token of each sequence."""

Cell = dict[str, Any]
"""`apart`, the largest difference, or why a step was `refused`, or what is `wrong`."""

Found = dict[str, dict[str, dict[str, Cell]]]
"""Cells by exporter, architecture and column; `export` where there is no model."""


def measure(names: Collection[str] = ()) -> int:
    """Export and measure what is not in the store; return 1 if a cell is wrong, else 0.

    Args:
        names: Architectures to measure anew; those that are missing if there is none.
    """
    for exporter in EXPORTERS:
        for name in names or ARCHITECTURES:
            if not names and name in found().get(exporter, {}):
                continue
            if name.endswith("_rolling") and exporter != "dynamo":
                continue  # the others write no such caches
            row = _row(exporter, name)
            print(
                exporter, name, *(f"{k}: {_text(row, k)}" for k in COLUMNS), sep=" | ", flush=True
            )
            _keep(exporter, name, row)
    cells = (c for rows in found().values() for row in rows.values() for c in row.values())
    return int(any("wrong" in cell for cell in cells))


def found() -> Found:
    """Return what was measured so far."""
    return json.loads(_STORE.read_text(encoding="utf-8")) if _STORE.exists() else {}


def _keep(exporter: str, name: str, row: dict[str, Cell]) -> None:
    kept = found()
    kept.setdefault(exporter, {})[name] = row
    ordered = {e: {n: kept[e][n] for n in ARCHITECTURES if n in kept[e]} for e in kept}
    new = _STORE.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    new.replace(_STORE)


def _exported(exporter: str, name: str) -> Path | str:
    """Return the model of an exporter, or in one line why it has none."""
    python = environment(f"exporter-{exporter}", EXPORTERS[exporter][1])
    folder = python.parents[2] / "exported" / exporter
    path = folder / name / "model.onnx"
    if not path.exists():
        (path.parent / "error.txt").unlink(missing_ok=True)
        command = [python, "-m", "benchmarks.export_decoder", exporter, folder, name]
        given = {**os.environ, "PYTHONPATH": str(_ROOT), "HF_HUB_OFFLINE": "1"}
        subprocess.run(command, env=given, cwd=_ROOT, capture_output=True, check=False)
    return path if path.exists() else (path.parent / "error.txt").read_text(encoding="utf-8")


def _row(exporter: str, name: str) -> dict[str, Cell]:
    source = _exported(exporter, name)
    if isinstance(source, str):
        return {"export": {"refused": source}}
    padded = exporter != "genai"  # GroupQueryAttention counts tokens and knows no padding before
    alone = bounded(lambda: {"apart": apart(source, source, None, padded=padded)})
    if "wrong" in alone:
        return {"export": {"refused": f"what it writes does not run, {alone['wrong']}"}}
    with tempfile.TemporaryDirectory() as directory:
        raised, static = Path(directory, "raised.onnx"), Path(directory, "static.onnx")
        row = {
            "raise": bounded(lambda: _raised(source, raised, padded=padded)),
            "static": bounded(lambda: _raised(source, static, padded=padded)),
        }
        base = raised if raised.exists() else source
        tried = [base, static] if static.exists() else [base]
        row["lower 13"] = bounded(lambda: _lowered(source, tried, 13, None, padded=padded))
        for column, runtime in _RUNTIMES.items():
            row[column] = bounded(
                lambda runtime=runtime: _lowered(source, tried, None, runtime, padded=padded)
            )
    return row


def bounded(work: Callable[[], Cell]) -> Cell:
    """Return what `work` finds in a process of bounded processor time and memory."""
    with tempfile.NamedTemporaryFile() as file:
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
            resource.setrlimit(resource.RLIMIT_DATA, (_BYTES, _BYTES))
            Path(file.name).write_text(json.dumps(_answer(work)), encoding="utf-8")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            return {"wrong": f"ended by {status}: more than {_SECONDS} s or {_BYTES >> 30} GiB"}
        answer: Cell = json.loads(file.read())
        return answer


def _answer(work: Callable[[], Cell]) -> Cell:
    try:
        return work()
    except Refused as refused:
        report = refused.report
        if report.verification.status == "different" or not report.reasons:
            return {"wrong": str(refused)}
        # That no cache got the capacity follows from what else is said.
        first = min(report.reasons, key=lambda reason: reason.code == "capacity-unused")
        return {"refused": first.code, "why": first.message}
    except (RuntimeFailed, AssertionError) as error:
        return {"wrong": f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"}
    except Exception as error:  # noqa: BLE001  # a fault of kvtool is what is looked for
        traceback.print_exc()
        return {"wrong": f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"}


def _raised(source: Path, path: Path, *, padded: bool) -> Cell:
    """Raise a model; with fixed sizes, for one token of one sequence, where `path` is static."""
    is_static = path.stem == "static"
    sizes = _one_token(source) if is_static else {}
    options: dict[str, Any] = {"capacity": _CAPACITY, "static": is_static, "dims": sizes}
    granted = {"rotated-rows"} if source.parent.name.endswith("_rolling") else set()
    try:
        model, report = kv.raise_(source, assume=granted, **options)
    except Refused as refused:
        granted = {o.assumption for o in refused.report.refused if o.assumption in _HOLDS}
        if not granted:
            raise
        model, report = kv.raise_(source, assume=granted, **options)
    path.write_bytes(serialize(model))
    cell: Cell = {"apart": apart(source, path, None, padded=padded)}
    if granted:
        cell["granted"] = sorted(granted)
    if report.refused:
        cell |= {"left": report.refused[0].code, "why": report.refused[0].message}
    if report.verification.status != "equal":
        return {"wrong": f"not verified: {report.verification.detail}"}
    return cell


def _lowered(
    source: Path,
    tried: list[Path],
    opset: int | None,
    runtime: tuple[str, str] | None,
    *,
    padded: bool,
) -> Cell:
    """Lower the first of some models that is not refused, and run it."""
    target = None if runtime is None else "@".join(runtime)
    first: Refused | None = None
    for base in tried:
        try:
            model, _ = kv.lower(base, opset=opset, target=target, verify=False)
        except Refused as refused:
            first = first or refused
            continue
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "lowered.onnx")
            path.write_bytes(serialize(model))
            cell: Cell = {"apart": apart(source, path, runtime, padded=padded)}
        return cell | {"fixed": True} if base.stem == "static" else cell
    assert first is not None
    raise first


def _one_token(source: Path) -> dict[str, int]:
    """Return the sizes of one new token of one sequence, by the names that the model gives them."""
    inputs = onnx.load(source, load_external_data=False).graph.input
    dims = {value.name: value.type.tensor_type.shape.dim for value in inputs}
    named = [ds[0] for ds in dims.values()] + [d for n in _TOKENS if n in dims for d in dims[n]]
    sizes = {dim.dim_param: 1 for dim in named if dim.dim_param}
    used = {dim.dim_param for ds in dims.values() for dim in ds}
    return sizes | {name: size for name, size in _GIVEN.items() if name in used}


def apart(source: Path, path: Path, runtime: tuple[str, str] | None, *, padded: bool) -> float:
    """Return the largest difference from the source, of logits and of rows in use.

    Raises:
        AssertionError: If it is more than rounding explains.
    """
    graph = onnx.load(path, load_external_data=False).graph
    values = {value.name: value for value in graph.input}
    ids = values["input_ids"].type.tensor_type.shape.dim
    is_one = ids[-1].dim_value == 1
    prompt = (4, 1, 1, 1)  # of which a model that picks four keys needs as many
    chunks = (1,) * 7 if is_one else prompt
    talk = conversation(1 if is_one else 2, sum(chunks))
    if not padded or "attention_mask" not in values:
        talk = Conversation(talk.ids, np.ones_like(talk.mask), {})
    if (states := values.get("encoder_hidden_states")) is not None:
        shape = len(talk.ids), _STATES, states.type.tensor_type.shape.dim[-1].dim_value
        drawn = np.random.default_rng(3).standard_normal(shape, np.float32)
        seen = np.ones(shape[:2], np.int64)
        talk.others.update({"encoder_hidden_states": drawn, "encoder_attention_mask": seen})
    with _runs(source, None) as run:
        expected, grown = Host(source, run, _WIDTHS).answer(talk, prompt)
    with _runs(path, runtime) as run:

        def fit(feeds: Arrays) -> Mapping[str, np.ndarray]:
            return run({name: fitting(array, values[name]) for name, array in feeds.items()})

        actual, caches = Host(path, fit, _WIDTHS).answer(talk, chunks)
    pairs = {"logits": (actual[talk.live], expected[talk.live])}
    for name, cache in grown.items():
        if sum(chunks) in cache.shape:
            axis = cache.shape.index(sum(chunks))
            live = talk.live.reshape(
                *(n if a in (0, axis) else 1 for a, n in enumerate(cache.shape))
            )
            rows = np.take(caches[name], range(sum(chunks)), axis)
            pairs[name] = np.where(live, rows, 0), np.where(live, cache, 0)
    worst = 0.0
    for name, (one, other) in pairs.items():
        assert one.shape == other.shape, f"{name} is {one.shape}, expected {other.shape}"
        largest = float(np.abs(one.astype(np.float64) - other).max())
        assert largest <= _LIMIT * max(1.0, float(np.abs(other).max())), f"{name}: {largest:.1e}"
        worst = max(worst, largest)
    return worst


@contextmanager
def _runs(
    path: Path, runtime: tuple[str, str] | None
) -> Iterator[Callable[[Arrays], Mapping[str, np.ndarray]]]:
    """Give what runs a model in a release, or in the onnxruntime beside kvtool."""
    if runtime is None:
        session = Session(path.read_bytes(), str(path.parent))
        yield lambda feeds: dict(session.run(feeds))
        return
    outputs = [value.name for value in onnx.load(path, load_external_data=False).graph.output]
    with running(*runtime, path) as run:
        yield lambda feeds: dict(zip(outputs, run(feeds), strict=True))


def section() -> str:
    """Return what was found as a section of the page."""
    kept, parts, stays = found(), [_ABOUT], defaultdict[str, list[str]](list)
    for exporter in (exporter for exporter in EXPORTERS if exporter in kept):
        lines = [f"### {EXPORTERS[exporter][0]}", "", f"| architecture | {' | '.join(COLUMNS)} |"]
        lines.append("| --- |" + " --- |" * len(COLUMNS))
        missing = defaultdict[str, list[str]](list)
        for name, row in kept[exporter].items():
            if "export" in row:
                missing[row["export"]["refused"].replace(f" {name} ", " ... ")].append(name)
                continue
            lines.append(f"| {name} | {' | '.join(_text(row, column) for column in COLUMNS)} |")
            for column, cell in row.items():
                if "why" in cell:
                    code = cell.get("refused") or cell["left"]
                    stays[f"`{code}`: {cell['why']}"].append(f"{name}, {exporter}, {column}")
        told = [f"- {', '.join(names)}: {reason}" for reason, names in missing.items()]
        parts.append("\n".join([*lines, "", *(["Not exported:", "", *told, ""] if told else [])]))
    reasons = [f"- {reason} ({'; '.join(whose)})" for reason, whose in sorted(stays.items())]
    return "\n".join([*parts, "### What stays", "", *reasons, ""])


def _text(row: dict[str, Cell], column: str) -> str:
    cell = row["export"] if "export" in row else row[column]
    if "wrong" in cell:
        return f"**{cell['wrong']}**"
    if "refused" in cell:
        return f"`{cell['refused']}`"
    notes = [
        *(["`--dim`"] if cell.get("fixed") else []),
        *(f"`--assume {text}`" for text in cell.get("granted", ())),
        *(["growing"] if "refused" in row["raise"] and column not in COLUMNS[:2] else []),
        *([f"`{cell['left']}` stays"] if "left" in cell else []),
    ]
    return f"proven ({', '.join(notes)})" if notes else "proven"
