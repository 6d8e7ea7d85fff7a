"""Growing decoders, raised and lowered for a release, answer a prompt in it as their sources do."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest

import onnx_kvtool as kv
from onnx_kvtool.core.model import serialize
from tests.compat.environments import RuntimeFailed, run_in
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

RELEASES: dict[str, tuple[str, str | None, str]] = {
    "onnxruntime": ("onnxruntime", "1.17.3", "auto"),
    "openvino": ("openvino", None, "keep"),
}
"""The runtime, its release, and what becomes of attention.

OpenVINO 2026.4.1 refuses Attention of grouped heads where it does not find their number itself.
"""

REFUSED = {
    ("t5_decoder_merged__optimum", "openvino"): "doesn't support If operation with dynamic rank",
}
"""What a release does not load, and its message."""


@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
@pytest.mark.parametrize("name", NAMES)
def test_a_release_answers_with_the_fixed_form_as_the_growing_one(
    name: str, release: tuple[str, str | None, str], tmp_path: Path
) -> None:
    runtime, version, attention = release
    model, _ = kv.raise_(
        FOLDER / f"{name}.onnx",
        capacity=CAPACITY,
        attention=attention,
        assume=["rotated-rows"] if name in ROLLING else [],
        verify=False,
    )
    target = "@".join(part for part in (runtime, version) if part)
    model, _ = kv.lower(model, target=target, verify=False)
    path = tmp_path / "model.onnx"
    path.write_bytes(serialize(model))
    names = [value.name or "" for value in model.graph.outputs]

    def run(feeds: Arrays) -> Arrays:
        return dict(zip(names, run_in(runtime, version, path, feeds), strict=True))

    prompt = 1 if name == "t5_decoder_with_past__optimum" else 7
    talk = talk_with(name, 2, prompt)
    expected, _ = host_of(name).answer(talk, [prompt])
    host = Host(onnx.load(path), run, kept=KEPT.get(name))
    if (name, runtime) in REFUSED:
        with pytest.raises(RuntimeFailed, match=re.escape(REFUSED[name, runtime])):
            host.answer(talk, [prompt])
        return
    found, _ = host.answer(talk, [prompt])
    assert largest(found[talk.live], expected[talk.live]) <= limit_of(name)
