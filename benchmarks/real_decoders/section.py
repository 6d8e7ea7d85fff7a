"""The section of the page about models of real size."""

from __future__ import annotations

from benchmarks.real_decoders import commands, tokens
from benchmarks.results import Section, Table

__all__ = ["REAL_DECODERS"]

_ABOUT = """\
Decoders of the dimensions that people deploy, with seeded random weights, in the pattern of
mobius: caches (B, S, KV * D) of any batch size, updated by TensorScatter.
`python -m benchmarks.real_models NAME DIR` writes each of them."""

_COMMANDS = f"""\
Each command is a process of its own; a number such as `1.72, 185 MB` is its processor time over
that of the floor (a process that imports onnx_ir, loads the model and saves it beside the original)
and the peak memory; one run each. `lower` goes from opset 24 to 18 and, as it
does by default, proves the result by running both models; `not proven` says where it did not.
`raise` starts from the same model with its caches updated by ScatterND. The weights are random,
those of 12.6 GiB a sparse file. Held against the targets is the verified `lower`: at most
{commands.TIME_TARGET} times the floor and {commands.MEMORY_TARGET} MB."""

_TOKENS = f"""\
In onnxruntime, on one thread, past and present of each cache bound to one buffer of 4096 rows. Each
session takes turns with the native one step by step, and a number is the median of the ratios of
their processor times; the native column has its time. So that two fit into memory, the models have
a quarter of their layers and of their vocabulary: each step takes about a quarter
of the time of the whole, and the shares of its parts are those of the whole. OpenVINO
{tokens.OPENVINO} runs the lowered model in an environment of its own, on one thread and in float32,
each present fed to the next step without a copy; its ratio is to the native model in onnxruntime.
bfloat16 is not here, because onnxruntime has no product of that type on a processor.

What a native step spends in Attention (onnxruntime 1.31.1) goes over all rows of the cache, valid
or not, and for float16 at a tenth of the speed of float32: hence ratios far below 1. Without a size
for the batch and without a runtime to write for, both caches of each layer are copied in each step,
because a product needs the heads in front; the more the caches weigh beside the weights, the more
this costs. `--dim batch=1` and `--target onnxruntime` do without.

Blocks of int4 behind DequantizeLinear are the exception. onnxruntime fuses the native form into its
kernel MatMulNBits. Below opset 21 there is neither the type nor the form; what takes the bytes
apart is folded into float32 weights when the model is loaded, and MatMul then reads eight times as
many bytes: in a step of a quarter of Qwen, 43 products take 128 ms where MatMulNBits takes 26 (a
profile of onnxruntime 1.31.1 on a busy machine). No standard form of an opset below 21 avoids that;
`--opset 21` keeps the blocks, and models that have MatMulNBits keep it at every opset.

A prompt of int8 is the other one. Its products are so fast that Attention is nine tenths of it, and
there the kernels of single operators do a little worse than the one of the native form: over
prompts of a quarter of Qwen, Attention takes 1.85 s; what it is lowered to takes 1.13 s in Softmax,
0.66 s in products and 0.41 s in the Add of the mask, which is one more pass over the scores (the
same profile, of this model)."""

REAL_DECODERS = Section(
    "real_decoders",
    "Models of real size",
    _ABOUT,
    (
        Table(
            "commands",
            _COMMANDS,
            ("model", commands.FLOOR.case, *commands.COMMANDS),
            commands.CASES,
            commands.lines,
        ),
        Table("tokens", _TOKENS, tokens.COLUMNS, tokens.CASES, tokens.lines),
    ),
)
"""Commands on models of real size, and tokens of them."""
