"""Write the decoders of `fixtures/growing`: `python -m tests.exports [NAME ...]`.

What it needs is not among kvtool's dependencies; `fixtures/growing/README.md` says what to install.
A model is written once onnxruntime has given what PyTorch gives, over a prompt and three steps.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from tests.exports.cases import CASES, Case
from tests.exports.decoders import Decoder, model_of
from tests.exports.exporters import after_tool, dynamo, optimum, torchscript
from tests.growing_models import CHUNKS, Arrays, Conversation, Host, conversation

_FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "growing"


def main(arguments: list[str]) -> None:
    """Write the models of these names, or those of an exporter that is installed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="by default all of --exporter")
    parser.add_argument("--exporter", choices=("torch", "optimum"), default="torch")
    parser.add_argument("--folder", type=Path, default=_FOLDER)
    asked = parser.parse_args(arguments)
    cases = {case.name: case for case in CASES}
    kind = asked.exporter == "optimum"
    names = asked.names or [
        name for name, case in cases.items() if (case.exporter == "optimum") == kind
    ]
    asked.folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        _write(cases[name], asked.folder)


def _write(case: Case, folder: Path) -> None:
    model = model_of(case.architecture, **case.options)
    if case.half:
        model = model.half()
    decoder = Decoder(model, case.inputs, rolling=case.rolling)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "model.onnx")
        if case.exporter == "optimum":
            optimum(model, path)
        elif case.exporter == "dynamo":
            dynamo(decoder, path, case.opset)
        else:
            torchscript(decoder, path, case.opset)
        if case.tool is not None:
            after_tool(case.tool, path)
        proto = onnx.load(path)
    _forget_traces(proto)
    talk = conversation(2, sum(CHUNKS))
    if not case.padded:
        talk = Conversation(talk.ids, np.ones_like(talk.mask), talk.others)
    talk.others.update(_others(case))
    expected = _torch(case, decoder, proto, talk)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), _quiet())
    outputs = [value.name for value in session.get_outputs()]

    def run(feeds: Arrays) -> Arrays:
        return dict(zip(outputs, session.run(None, feeds), strict=True))

    logits, caches = Host(proto, run, kept=case.kept).answer(talk)
    worst = _difference(logits[talk.live], expected["logits"][talk.live])
    for name, cache in caches.items():
        live = talk.mask[:, None, -cache.shape[2] :, None].astype(bool)
        worst = max(worst, _difference(np.where(live, cache, 0), np.where(live, expected[name], 0)))
    limit = 3e-2 if case.half else 1e-4
    sized = f"{case.name}: {proto.ByteSize() // 1000} kB, off by {worst:.1e}"
    spread = float(expected["logits"].astype(np.float32).std())
    if not worst <= limit or spread < 0.05:
        print(f"NOT KEPT {sized}, logits spread {spread:.2f}")  # noqa: T201
        return
    print(f"{sized}, logits spread {spread:.2f}", flush=True)  # noqa: T201
    onnx.save(proto, folder / f"{case.name}.onnx")
    arrays = {"in:input_ids": talk.ids, "in:attention_mask": talk.mask}
    arrays |= {f"in:{name}": array for name, array in talk.others.items()}
    arrays |= {f"out:{name}": array for name, array in expected.items()}
    np.savez_compressed(folder / f"{case.name}.npz", **arrays)


def _quiet() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return options


def _difference(actual: np.ndarray, expected: np.ndarray) -> float:
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    return float(np.abs(actual.astype(np.float64) - expected).max())


def _torch(case: Case, decoder: Decoder, proto: onnx.ModelProto, talk: Conversation) -> Arrays:
    """Return what PyTorch answers: the logits of all tokens, and the caches after the last."""
    import torch

    def run(feeds: Arrays) -> Arrays:
        given = {name: torch.from_numpy(array) for name, array in feeds.items()}
        pasts = [name for name in given if name.startswith("past_key_values")]
        pasts.sort(key=lambda name: (int(name.split(".")[1]), "value" in name))
        names = [name for name in given if name not in pasts]
        with torch.no_grad():
            module = Decoder(decoder.model, tuple(names), rolling=decoder.rolling)
            found = module(*(given[name] for name in [*names, *pasts]))
        presents = [name.replace("past_key_values", "present") for name in pasts]
        return {
            name: tensor.numpy() for name, tensor in zip(["logits", *presents], found, strict=True)
        }

    logits, caches = Host(proto, run, kept=case.kept).answer(talk)
    return {"logits": logits, **caches}


def _others(case: Case) -> Arrays:
    """Return the states of an encoder where the decoder reads them."""
    if "encoder_hidden_states" not in case.inputs:
        return {}
    states = np.random.default_rng(1).normal(size=(2, 7, 32)).astype(np.float32)
    return {"encoder_hidden_states": states}


def _forget_traces(proto: onnx.ModelProto) -> None:
    """Remove what the dynamo exporter writes beside nodes for reading: half of a small file."""
    for node in proto.graph.node:
        del node.metadata_props[:]
    for value in (*proto.graph.value_info, *proto.graph.input, *proto.graph.output):
        del value.metadata_props[:]


if __name__ == "__main__":
    main(sys.argv[1:])
