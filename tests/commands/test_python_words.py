"""What a program reads of a refusal names its keywords, and no flag."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import onnx_kvtool as kv
from onnx_kvtool.commands.arguments import in_keywords
from tests.grids import each

SENTENCES = [
    (kv.lower, "`--opset` is 24", "`opset` is 24"),
    (kv.lower, "switch it off with `--no-verify`", "switch it off with `verify=False`"),
    (kv.lower, "`--verify` needs memory", "`verify=True` needs memory"),
    (kv.lower, "give a size with `--dim batch=2`", 'give a size with `dims={"batch": 2}`'),
    (kv.lower, "give `--dim NAME=INT`", 'give `dims={"NAME": INT}`'),
    (kv.lower, "use `--contrib standard`", 'use `contrib="standard"`'),
    (kv.lower, "use `--index-dtype int64`", 'use `index_dtype="int64"`'),
    (kv.raise_, "grant `--assume covers-past:mask`", 'grant `assume=["covers-past:mask"]`'),
    (kv.raise_, "give `--capacity 32`", "give `capacity=32`"),
    (kv.raise_, "give `--capacity N`", "give `capacity=N`"),
    (kv.raise_, "leave out `--require-all`", "leave out `require_all=True`"),
    (kv.check, "no `--target tensorrt`", 'no `targets=["tensorrt"]`'),
    (kv.evaluate, "feed it with `--input past=SPEC`", 'feed it with `inputs={"past": SPEC}`'),
    (kv.lower, "see `kvtool --debug` and `--debug`", "see `kvtool --debug` and `--debug`"),
    (kv.inspect, "`--opset` belongs to another command", "`--opset` belongs to another command"),
]


@each(("function", "said", "expected"), SENTENCES)
def test_a_flag_becomes_the_keyword_of_the_function(function, said: str, expected: str) -> None:
    assert in_keywords(said, inspect.signature(function).parameters) == expected


def test_an_error_of_a_function_names_keywords_in_all_it_says(root: Path) -> None:
    with pytest.raises(kv.UsageError) as caught:
        kv.lower(root / "fixtures/models/native/llama_static.onnx", opset=24)
    assert str(caught.value) == caught.value.message == "`opset` is 24, expected 9 to 23"
    assert caught.value.help is None or "--" not in caught.value.help
