"""Models at URLs: no more is fetched than is needed, from servers as they are."""

from __future__ import annotations

import functools
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import read
from onnx_kvtool.model_io.remote import beside, is_remote, prefix, shown
from tests.grids import each, part
from tests.model_io.web_server import Server, serving

pytestmark = pytest.mark.long

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")

SIDE = 1100  # a weight of 4.84 MB: more than is read at once
WEIGHTS = 3


@functools.cache
def stored(external: str | None = None) -> bytes:
    return model(external=external).SerializeToString()


def model(*, external: str | None = None) -> onnx.ModelProto:
    """Return a chain of products with `WEIGHTS` weights, of which one may be external."""
    nodes, weights, last = [], [], "x"
    for layer in range(WEIGHTS):
        values = np.full((SIDE, SIDE), layer + 1, np.float32)
        weight = onnx.numpy_helper.from_array(values, f"w{layer}")
        weights.append(weight)
        nodes.append(helper.make_node("MatMul", [last, f"w{layer}"], [f"y{layer}"]))
        last = f"y{layer}"
    if external is not None:
        first = weights[0]
        first.ClearField("raw_data")
        first.data_location = TensorProto.EXTERNAL
        first.external_data.add(key="location", value=external)
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", SIDE])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, ["N", SIDE])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


WHOLE = WEIGHTS * 4 * SIDE * SIDE


def told(report: object) -> object:
    """Return what a report says, but for the name of the model."""
    return json.dumps(report.to_json()) if hasattr(report, "to_json") else str(report)


COMMANDS: dict[str, Callable[[str], object]] = {
    "inspect": lambda url: told(kv.inspect(url)),
    "infer": lambda url: told(
        kv.infer(url)[1] if isinstance(kv.infer(url), tuple) else kv.infer(url)
    ),
    "check": lambda url: [f.to_json() for f in kv.check(url)],
    "print": lambda url: kv.print(url, weights="none"),
}


@part(2)
@pytest.mark.parametrize("name", COMMANDS)
def test_weights_are_not_fetched(server: Server, tmp_path: Path, name: str) -> None:
    data = stored()
    server.files["/m/model.onnx"] = data
    local = tmp_path / "model.onnx"
    local.write_bytes(data)
    url = server.url("/m/model.onnx")
    far, near = COMMANDS[name](url), COMMANDS[name](str(local))
    assert str(far).replace(url, "") == str(near).replace(str(local), "")
    assert server.sent < WHOLE / 10
    assert server.requests <= 2 * (WEIGHTS + 3)


def test_values_are_fetched_when_they_are_asked_for(server: Server) -> None:
    server.files["/m/model.onnx"] = stored()
    loaded = read(server.url("/m/model.onnx"))
    before = server.sent
    tensor = loaded.graph.initializers["w1"].const_value
    assert tensor is not None and (tensor.numpy() == 2).all()
    assert 4 * SIDE * SIDE <= server.sent - before <= 4 * SIDE * SIDE + (1 << 16)


def test_the_digests_are_those_of_the_file(server: Server, tmp_path: Path) -> None:
    data = stored(external="w.data")
    values = np.arange(SIDE * SIDE, dtype=np.float32).tobytes()
    server.files = {"/m/model.onnx": data, "/m/w.data": values}
    (tmp_path / "model.onnx").write_bytes(data)
    (tmp_path / "w.data").write_bytes(values)
    assert kv.print(server.url("/m/model.onnx")) == kv.print(str(tmp_path / "model.onnx"))


def test_data_beside_a_model_is_not_looked_for(server: Server) -> None:
    server.files["/m/model.onnx"] = stored(external="w.data")
    url = server.url("/m/model.onnx")
    kv.inspect(url)
    found = kv.check(url)
    assert not {f.code for f in found if f.code.startswith("XD")}
    assert {path.partition("?")[0] for path in server.seen} == {"/m/model.onnx"}


@pytest.mark.parametrize(
    "location", ["../secret", "/etc/passwd", "a/../../b", "C:/x", "w::file:///etc/passwd", "s3://b"]
)
def test_data_stays_below_the_prefix(server: Server, location: str) -> None:
    server.files["/m/model.onnx"] = stored(external=location)
    with pytest.raises(kv.KvtoolError, match=r"leaves the directory|is absolute|is a URL"):
        kv.print(server.url("/m/model.onnx"))
    assert {path.partition("?")[0] for path in server.seen} == {"/m/model.onnx"}


def test_a_server_without_ranges_sends_the_file_once_and_nothing_is_kept(server: Server) -> None:
    server.ranges = False
    data = stored()
    server.files["/m/model.onnx"] = data
    assert kv.inspect(server.url("/m/model.onnx")).model.initializers == WEIGHTS
    assert server.sent <= 2 * len(data)
    loaded = read(server.url("/m/model.onnx"))
    tensor = loaded.graph.initializers["w2"].const_value
    assert tensor is not None and (tensor.numpy() == 3).all()


def test_a_server_that_redirects(server: Server) -> None:
    server.files["/m/model.onnx"] = stored()
    report = kv.inspect(server.url("/moved/m/model.onnx"))
    assert report.model.initializers == WEIGHTS
    assert server.sent < WHOLE / 10


@pytest.mark.exhaustive
def test_a_server_that_is_slow(server: Server) -> None:
    server.delay = 0.2
    server.files["/m/model.onnx"] = stored()
    assert kv.inspect(server.url("/m/model.onnx")).model.initializers == WEIGHTS


def test_a_server_that_breaks_off(server: Server) -> None:
    server.breaks_at = 1000
    server.files["/m/model.onnx"] = stored()
    with pytest.raises(kv.UnreadableModel, match=r"cannot be read|is truncated"):
        kv.inspect(server.url("/m/model.onnx"))


BAD = {
    "no such file": ("/none.onnx", b"", "`http://127.0.0.1:[0-9]+/none.onnx` does not exist"),
    "no model": ("/a.onnx", b"\x00" * 100, "is no ONNX model"),
    "a page": ("/a.onnx", b"<html><body>Sign in</body></html>", "is no ONNX model|HTML|truncated"),
    "an empty file": ("/a.onnx", b"", "is empty|does not exist|cannot be read"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read(server: Server, name: str) -> None:
    path, data, message = BAD[name]
    if name != "no such file":
        server.files[path] = data
    with pytest.raises(kv.UnreadableModel, match=message):
        kv.inspect(server.url(path))


def test_credentials_appear_nowhere(server: Server, kvtool) -> None:  # type: ignore[no-untyped-def]
    server.files["/m/model.onnx"] = stored()
    for path in ("/m/model.onnx", "/none.onnx"):
        url = server.url(path, "user:hunter2@") + "?token=hunter2"
        for command in ("inspect", "check", "infer", "print", "diff"):
            for form in ((), ("--format", "json")):
                if command == "print" and form:
                    continue
                models = (url, url) if command == "diff" else (url,)
                result = kvtool("--debug", command, *models, *form)
                assert "hunter2" not in result.stdout + result.stderr
                assert result.exit_code == (0 if path != "/none.onnx" else 3) or command == "check"


def test_a_directory_is_gone_through() -> None:
    memory = fsspec.filesystem("memory")
    for name in ("a", "b", "sub/c"):
        with memory.open(f"/repository/{name}.onnx", "wb") as file:
            file.write(stored())
    report = kv.check(["memory://repository"])
    assert [file.path for file in report.files] == [
        f"memory:///repository/{name}.onnx" for name in ("a", "b", "sub/c")
    ]


@part(2)
@pytest.mark.parametrize("place", ["", "m/"])
@pytest.mark.parametrize("cache", ["", "simplecache::"])
def test_models_in_an_archive_find_their_data(tmp_path: Path, cache: str, place: str) -> None:
    data = stored(external="w.data")
    values = np.arange(SIDE * SIDE, dtype=np.float32).tobytes()
    archive = tmp_path / "models.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(f"{place}model.onnx", data)
        file.writestr(f"{place}w.data", values)
    (tmp_path / "model.onnx").write_bytes(data)
    (tmp_path / "w.data").write_bytes(values)
    url = f"{cache}zip://{place}model.onnx::file://{archive}"
    assert kv.print(url) == kv.print(str(tmp_path / "model.onnx"))
    folder = f"{cache}zip://{place}::file://{archive}"
    assert [file.path for file in kv.check([folder]).files] == [url]


def test_data_behind_a_cache_is_found(server: Server, tmp_path: Path) -> None:
    data = stored(external="w.data")
    values = np.arange(SIDE * SIDE, dtype=np.float32).tobytes()
    server.files = {"/model.onnx": data, "/w.data": values}
    (tmp_path / "model.onnx").write_bytes(data)
    (tmp_path / "w.data").write_bytes(values)
    printed = kv.print("simplecache::" + server.url("/model.onnx"))
    assert printed == kv.print(str(tmp_path / "model.onnx"))


@pytest.mark.parametrize("cache", ["", "simplecache::"])
def test_data_does_not_leave_an_archive(tmp_path: Path, cache: str) -> None:
    private = tmp_path / "private.zip"
    with zipfile.ZipFile(private, "w") as file:
        file.writestr("ww", b"x" * (4 * SIDE * SIDE))
    archive = tmp_path / "models.zip"
    with zipfile.ZipFile(archive, "w") as file:
        hostile = stored(external=f"ww::file://{private}")
        file.writestr("model.onnx", hostile)
    url = f"{cache}zip://model.onnx::file://{archive}"
    for command in (kv.print, lambda url: kv.diff(url, url)):
        with pytest.raises(kv.UnreadableModel, match="is a URL"):
            command(url)
    assert "XD502" in {f.code for f in kv.check(url)}


def test_data_does_not_leave_a_directory_that_a_url_names(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x" * (4 * SIDE * SIDE))
    home = tmp_path / "home"
    home.mkdir()
    (home / "w.data").symlink_to("../secret")
    (home / "model.onnx").write_bytes(stored(external="w.data"))
    with pytest.raises(kv.UnreadableModel, match="outside the directory"):
        kv.print(f"file://{home}/model.onnx")


def test_urls_that_differ_by_what_is_not_shown_are_two(server: Server) -> None:
    values = [np.full(SIDE * SIDE, number, np.float32).tobytes() for number in (1, 2)]
    server.files["/m.onnx"] = stored(external="w.data")
    server.files |= {f"/w.data?v={number}": data for number, data in enumerate(values)}
    texts = [kv.print(server.url(f"/m.onnx?v={number}")) for number in (0, 1)]
    assert texts[0] != texts[1]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nothing://a/b.onnx", "is a URL of a kind that fsspec does not support"),
        ("gs://a/b.onnx", "needs the package of its filesystem"),
    ],
)
def test_a_filesystem_that_is_missing_is_named(url: str, message: str) -> None:
    with pytest.raises(kv.UsageError, match=message):
        kv.inspect(url)


@pytest.mark.parametrize("command", ["lower", "raise", "bench"])
def test_what_needs_weights_wants_a_file(kvtool, command: str) -> None:  # type: ignore[no-untyped-def]
    result = kvtool(command, "https://example.invalid/m.onnx")
    assert result.exit_code == 2
    assert "is a URL, which `inspect`, `check`, `infer`, `print` and `diff` read" in result.stderr


@each(
    ("source", "expected"),
    [
        ("model.onnx", False),
        ("C:\\models\\model.onnx", False),
        ("C:/model.onnx", False),
        ("a:b.onnx", False),
        ("https://host/m.onnx", True),
        ("zip://m.onnx::https://host/m.zip", True),
        ("memory://m.onnx", True),
    ],
)
def test_what_is_a_url(source: str, expected: bool) -> None:
    assert is_remote(source) is expected


def test_what_is_said_of_a_url() -> None:
    assert shown("https://u:p@h/a/m.onnx?token=1#x") == "https://h/a/m.onnx"
    assert shown("zip://m.onnx::https://u:p@h/a.zip?t=1") == "zip://m.onnx::https://h/a.zip"
    base = prefix("https://u:p@h/a/m.onnx?token=1")
    assert base == "https://h/a/"
    assert beside(base, "w #1.data") == "https://u:p@h/a/w%20%231.data?token=1"


@each(
    ("url", "data"),
    [
        ("https://h/m.onnx", "https://h/w"),
        ("zip://m.onnx::https://u:p@h/a.zip?t=1", "zip://w::https://u:p@h/a.zip?t=1"),
        ("simplecache::https://h/a/m.onnx?t=1", "simplecache::https://h/a/w?t=1"),
        ("simplecache::zip://m.onnx::a.zip", "simplecache::zip://w::a.zip"),
        ("memory://m.onnx", "memory://w"),
        ("file:///m.onnx", "file:///w"),
    ],
)
def test_where_data_lies(url: str, data: str) -> None:
    assert is_remote(prefix(url))
    assert beside(prefix(url), "w") == data
