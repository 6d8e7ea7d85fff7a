"""Growing decoders, raised and lowered for a release, answer in it as their sources do."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import serialize
from tests.compat.environments import running
from tests.growing_models import Arrays, Host
from tests.test_growing_models import (
    CAPACITY,
    FOLDER,
    KEPT,
    NAMES,
    ROLLING,
    host_of,
    largest,
    limit_of,
    talk_with,
)

pytestmark = pytest.mark.compat

RELEASES: dict[str, tuple[str, str | None]] = {
    "onnxruntime": ("onnxruntime", "1.17.3"),
    "openvino": ("openvino", None),
}
"""The runtime, and its release."""

CHUNKS = (7, 1, 1, 3)
"""A prompt, two steps, and a chunk in mid-sequence."""


@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
@pytest.mark.parametrize("name", NAMES)
def test_a_release_answers_with_the_fixed_form_as_the_growing_one(
    name: str, release: tuple[str, str | None], tmp_path: Path
) -> None:
    model, _ = kv.raise_(
        FOLDER / f"{name}.onnx",
        capacity=CAPACITY,
        assume=["rotated-rows"] if name in ROLLING else [],
        verify=False,
    )
    model, _ = kv.lower(model, target="@".join(part for part in release if part), verify=False)
    path = tmp_path / "model.onnx"
    path.write_bytes(serialize(model))
    names = [value.name or "" for value in model.graph.outputs]

    chunks = [1] * 4 if name == "t5_decoder_with_past__optimum" else CHUNKS
    talk = talk_with(name, 2, sum(chunks))
    expected, _ = host_of(name).answer(talk, chunks)
    with running(*release, path) as run:

        def step(feeds: Arrays) -> Arrays:
            return dict(zip(names, run(feeds), strict=True))

        host = Host(onnx.load(path), step, kept=KEPT.get(name))
        found, _ = host.answer(talk, chunks)
    assert largest(found[talk.live], expected[talk.live]) <= limit_of(name)
