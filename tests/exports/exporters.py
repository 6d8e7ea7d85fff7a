"""The exporters, called as their users call them, and the optimisers that come after them."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import torch

from tests.exports.decoders import Decoder

__all__ = ["after_tool", "dynamo", "genai", "optimum", "torchscript"]

_NEW, _PAST, _BATCH, _MEMORY = 3, 4, 2, 7
"""Sizes at which a model is traced."""


def _example(decoder: Decoder) -> tuple[list[torch.Tensor], list[dict[int, str]], list[str]]:
    """Return tensors to trace with, the names of their dynamic dimensions, and their names."""
    known = {
        "input_ids": (torch.arange(1, 1 + _BATCH * _NEW).reshape(_BATCH, _NEW), "batch seq"),
        "attention_mask": (torch.ones(_BATCH, _PAST + _NEW, dtype=torch.int64), "batch total"),
        "position_ids": (_PAST + torch.arange(_NEW).expand(_BATCH, _NEW), "batch seq"),
        "encoder_hidden_states": (
            torch.ones(_BATCH, _MEMORY, decoder.model.config.hidden_size),
            "batch memory",
        ),
    }
    tensors = [known[name][0] for name in decoder.names]
    axes = [dict(enumerate(known[name][1].split())) for name in decoder.names]
    names = list(decoder.names)
    states = [known[name][0] for name in names if "hidden" in name]
    for layer, pair in enumerate(_caches(decoder, *states)):
        for part, cache in zip(("key", "value"), pair, strict=True):
            names.append(f"past_key_values.{layer}.{part}")
            tensors.append(torch.randn_like(cache))
            axes.append({0: "batch", 2: "past"})
    return tensors, axes, names


def _caches(decoder: Decoder, *states: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return keys and values of each layer, as the model leaves them after its first tokens."""
    given = dict(zip(["encoder_hidden_states"], states, strict=False))
    with torch.no_grad():
        found = decoder.model(torch.ones(_BATCH, _PAST, dtype=torch.int64), use_cache=True, **given)
    caches = found.past_key_values
    layers = getattr(caches, "self_attention_cache", caches).layers
    return [(layer.keys, layer.values) for layer in layers]


def _outputs(names: list[str]) -> list[str]:
    pasts = [name for name in names if name.startswith("past_key_values")]
    return ["logits", *(name.replace("past_key_values", "present") for name in pasts)]


def dynamo(decoder: Decoder, path: Path, opset: int, *, is_named: bool = False) -> None:
    """Export with `torch.onnx.export(dynamo=True)`; sizes get names of torch unless `is_named`."""
    tensors, axes, names = _example(decoder)
    auto = torch.export.Dim.AUTO
    dynamic = [{n: name if is_named else auto for n, name in dims.items()} for dims in axes]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            decoder, tuple(tensors), input_names=names, output_names=_outputs(names),
            dynamic_shapes=(tuple(dynamic),), opset_version=opset, dynamo=True, verbose=False,
        )  # fmt: skip
    program.save(path)


def torchscript(decoder: Decoder, path: Path, opset: int) -> None:
    """Export with `torch.onnx.export(dynamo=False)`."""
    tensors, axes, names = _example(decoder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            decoder, tuple(tensors), str(path), input_names=names, output_names=_outputs(names),
            dynamic_axes=dict(zip(names, axes, strict=True)), opset_version=opset, dynamo=False,
        )  # fmt: skip


def optimum(model: Any, path: Path) -> None:
    """Export with optimum, as `optimum-cli export onnx` does, with caches."""
    from optimum.exporters.onnx import onnx_export_from_model

    whole = {"t5": "text2text-generation", "whisper": "automatic-speech-recognition"}
    task = f"{whole.get(model.config.model_type, 'text-generation')}-with-past"
    onnx_export_from_model(model, path.parent, task=task, do_validation=False, opset=18)
    if (merged := path.with_name("decoder_model_merged.onnx")).exists():
        merged.rename(path)
    if not path.exists():
        raise FileNotFoundError(", ".join(entry.name for entry in path.parent.iterdir()))


def genai(model: Any, path: Path) -> None:
    """Build with onnxruntime-genai, in float32, from a checkpoint beside the file."""
    import onnx
    from onnxruntime_genai.models import builder
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    checkpoint = path.parent / "checkpoint"
    model.save_pretrained(checkpoint)
    words = {f"<{number}>": number for number in range(model.config.vocab_size)}
    PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="<0>")), pad_token="<0>"
    ).save_pretrained(checkpoint)
    asked = ("", str(checkpoint), str(path.parent), "fp32", "cpu", str(path.parent / "cache"))
    builder.create_model(*asked, **builder.parse_extra_options(*asked, []))
    if not path.exists():
        files = sorted(entry.name for entry in path.parent.glob("*.onnx"))
        raise FileNotFoundError(f"it writes {', '.join(files)}, and no `model.onnx`")
    onnx.save(onnx.load(path), path)  # with the weights, which it puts beside it


def after_tool(tool: str, path: Path) -> None:
    """Rewrite a file as one of the tools that users run on exports does."""
    if tool == "onnxslim":
        import onnx
        import onnxslim

        onnx.save(onnxslim.slim(onnx.load(path)), path)
    elif tool == "onnxsim":
        import onnx
        import onnxsim

        model, right = onnxsim.simplify(onnx.load(path))
        assert right
        onnx.save(model, path)
    else:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(path.with_suffix(".ort.onnx"))
        onnxruntime.InferenceSession(path, options)
        shutil.move(path.with_suffix(".ort.onnx"), path)
