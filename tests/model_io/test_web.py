"""Web servers that are plain, broken or hostile: each is told as what it is, and each ends."""

from __future__ import annotations

import functools
import gzip
import http.server
import io
import time
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnx_kvtool as kv
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.model_io import remote, skeleton
from tests.grids import each, part
from tests.model_io.web_server import Server, answering, serving

pytestmark = pytest.mark.long

pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")

Handler = BaseHTTPRequestHandler


def model(nodes: int = 50, *, about: int = 200_000, external: str | None = None) -> bytes:
    """Return a chain that takes more than one request, as much is said about it."""
    weight = onnx.numpy_helper.from_array(np.arange(35, dtype=np.float32).reshape(5, 7), "w")
    if external is not None:
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value=external)
    chain = [helper.make_node("Add", ["x", "w"], ["y0"])]
    chain += [helper.make_node("Neg", [f"y{n}"], [f"y{n + 1}"]) for n in range(nodes)]
    graph = helper.make_graph(
        chain,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 7])],
        [helper.make_tensor_value_info(f"y{nodes}", TensorProto.FLOAT, [5, 7])],
        [weight],
        doc_string="about " * (about // 6),
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    data: bytes = made.SerializeToString()
    return data


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[str]:
    """What `python -m http.server` is, of a directory with a model: a server without ranges."""

    class Silent(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    (tmp_path / "m.onnx").write_bytes(model(external="w.data"))
    (tmp_path / "w.data").write_bytes(np.arange(35, dtype=np.float32).tobytes())
    handler = functools.partial(Silent, directory=tmp_path)
    with answering(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)) as running:
        yield f"http://127.0.0.1:{running.server_address[1]}/m.onnx"


COMMANDS: dict[str, Callable[[str], object]] = {
    "inspect": lambda path: kv.inspect(path).to_json()["ops"],
    "check": lambda path: [finding.to_json() for finding in kv.check(path)],
    "infer": lambda path: {**kv.infer(path)[1].to_json(), "model": ""},
    "print": kv.print,
    "diff": lambda path: kv.diff(path, path).status,
}


@pytest.mark.parametrize("cache", ["", "simplecache::"])
@pytest.mark.parametrize("name", COMMANDS)
def test_the_server_of_python(plain: str, tmp_path: Path, name: str, cache: str) -> None:
    local = str(tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").stat().st_size > 1 << 16
    assert COMMANDS[name](cache + plain) == COMMANDS[name](local)


def status(number: int) -> Callable[[Handler], None]:
    def answer(handler: Handler) -> None:
        handler.send_response(number)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def to(place: str) -> Callable[[Handler], None]:
    def answer(handler: Handler) -> None:
        handler.send_response(302)
        handler.send_header("Location", place)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


REFUSALS: dict[str, tuple[Callable[[Handler], None], str]] = {
    "500": (status(500), "its server answers HTTP 500 Internal Server Error"),
    "503": (status(503), "its server answers HTTP 503 Service Unavailable"),
    "599": (status(599), "its server answers HTTP 599"),
    "403": (status(403), "its server answers HTTP 403 Forbidden"),
    "401": (status(401), "its server answers HTTP 401 Unauthorized"),
    "429": (status(429), "its server answers HTTP 429 Too Many Requests"),
    "404": (status(404), "does not exist"),
    "410": (status(410), "does not exist"),
    "a loop": (to("/m.onnx"), "its server redirects without end"),
}


@pytest.mark.parametrize("chain", ["", "simplecache::", "zip://m.onnx::"])
@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_are_told_as_what_they_are(server: Server, name: str, chain: str) -> None:
    server.answers["/m.onnx"], message = REFUSALS[name]
    with pytest.raises(kv.UnreadableModel, match=message) as caught:
        kv.inspect(chain + server.url("/m.onnx"))
    assert (caught.value.help is None) is (message == "does not exist")


@pytest.mark.parametrize("chain", ["", "simplecache::"])
def test_a_server_that_is_not_there(server: Server, chain: str) -> None:
    url = server.url("/m.onnx")
    server.server_close()
    with pytest.raises(kv.UnreadableModel, match=r"cannot be read: .*[Cc]onnect"):
        kv.inspect(chain + url)


def test_a_redirect_without_a_place_is_no_loop(server: Server) -> None:
    server.answers["/m.onnx"] = status(302)
    with pytest.raises(kv.UnreadableModel, match="its server answers HTTP 302 Found"):
        kv.inspect(server.url("/m.onnx"))


def body(
    pieces: Callable[[], Iterator[bytes]], number: int = 200, **headers: str
) -> Callable[[Handler], None]:
    """Answer with pieces until whoever asked has enough."""

    def answer(handler: Handler) -> None:
        handler.send_response(number)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        for piece in pieces():
            handler.wfile.write(piece)

    return answer


def endless(piece: bytes) -> Callable[[], Iterator[bytes]]:
    def pieces() -> Iterator[bytes]:
        while True:
            yield piece

    return pieces


def stalled() -> Iterator[bytes]:
    yield model()[:100]
    time.sleep(3)


def bomb(piece: bytes) -> Callable[[], Iterator[bytes]]:
    """A gzip stream of 16 GiB."""

    def pieces() -> Iterator[bytes]:
        packed = gzip.compress(piece * ((1 << 22) // len(piece)), 9)  # soon done, when all is busy
        for _ in range(4096):
            yield packed

    return pieces


FIELDS = b"\x12\x02ab" * (1 << 14)  # the name of a producer, again and again
RANGE = {"Content_Range": "bytes 0-65535/70000"}
GRAPH = b"\x3a\x80\x80\x80\x80\x70" + FIELDS  # of 30 GB

ENDINGS: dict[str, tuple[Callable[[Handler], None], str]] = {
    "zeros": (body(endless(bytes(1 << 16))), "its bytes are no protobuf message"),
    "fields": (body(endless(FIELDS)), "took too long"),
    "a graph that has no end": (body(endless(GRAPH)), "larger than 2 GiB"),
    "nothing": (body(stalled), "took too long|is truncated"),
    "a bomb of zeros": (
        body(bomb(bytes(1 << 16)), Content_Encoding="gzip"),
        "its bytes are no protobuf message|took too long",
    ),
    "a bomb of fields": (body(bomb(FIELDS), Content_Encoding="gzip"), "took too long"),
    "a range of zeros": (body(endless(bytes(1 << 16)), 206, **RANGE), "no protobuf message"),
    "a range of what is packed": (
        body(bomb(FIELDS), 206, Content_Encoding="gzip", **RANGE),
        "sends other bytes than requested",
    ),
    "another range": (
        body(endless(FIELDS), 206, Content_Range="bytes 7-70000/70000"),
        "sends other bytes than requested",
    ),
    "a range of no place": (body(endless(FIELDS), 206), "sends other bytes than requested"),
}


@part(2)
@pytest.mark.parametrize("name", ENDINGS)
def test_bodies_without_an_end_end(server: Server, name: str) -> None:
    server.answers["/m.onnx"], message = ENDINGS[name]
    begun = time.monotonic()
    with pytest.raises(kv.UnreadableModel, match=message):
        kv.inspect(server.url("/m.onnx"), timeout=0.5)
    assert time.monotonic() - begun < 20, "a bound of time, not a measure"


def test_a_range_of_an_archive_ends(server: Server) -> None:
    server.answers["/m.zip"] = body(endless(bytes(1 << 16)), 206, **RANGE)
    with pytest.raises(kv.UnreadableModel, match=r"/m.zip` sends more than 128 MiB at once"):
        kv.inspect("zip://m.onnx::" + server.url("/m.zip"), timeout=60)


def test_little_is_kept_of_what_nobody_announces(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skeleton, "_UNANNOUNCED", 1 << 20)
    server.answers["/m.onnx"] = body(endless(FIELDS))
    with pytest.raises(kv.UnreadableModel, match="has more than 1 MiB beside large weights"):
        kv.inspect(server.url("/m.onnx"), timeout=60)


@pytest.mark.parametrize("chain", ["simplecache::", "zip://m.onnx::simplecache::"])
def test_little_is_copied_of_what_nobody_announces(
    server: Server, monkeypatch: pytest.MonkeyPatch, chain: str
) -> None:
    monkeypatch.setattr(remote, "_COPIED", 1 << 20)
    server.answers["/m.onnx"] = body(endless(FIELDS))
    with pytest.raises(kv.UnreadableModel, match=r"/m.onnx` sends more than 1 MiB"):
        kv.inspect(chain + server.url("/m.onnx"), timeout=60)


@pytest.mark.parametrize("cache", ["simplecache::", "filecache::"])
@pytest.mark.parametrize("archive", ["", "zip://m.onnx::"])
def test_a_part_of_a_copy_is_not_read_again(
    server: Server, monkeypatch: pytest.MonkeyPatch, archive: str, cache: str
) -> None:
    monkeypatch.setattr(remote, "_COPIED", 1 << 20)
    url = archive + cache + server.url("/m.onnx")
    server.answers["/m.onnx"] = body(endless(FIELDS))
    for _ in range(2):
        with pytest.raises(kv.UnreadableModel, match="sends more than 1 MiB"):
            kv.inspect(url, timeout=60)
    data = zipped(model(3)) if archive else model(3)
    server.answers["/m.onnx"] = body(lambda: iter([data]))
    assert kv.inspect(url, timeout=60).model.nodes == 4


@pytest.mark.parametrize("chain", ["blockcache::", "cached::", "zip://m.onnx::blockcache::"])
def test_a_cache_of_blocks_needs_a_length(server: Server, chain: str) -> None:
    server.answers["/m.onnx"] = body(lambda: iter([model(3)]))
    with pytest.raises(kv.UnreadableModel, match="does not announce its length") as caught:
        kv.inspect(chain + server.url("/m.onnx"), timeout=60)
    assert "`simplecache::`" in (caught.value.help or "")
    server.files["/known.onnx"] = zipped(model(3)) if "zip" in chain else model(3)
    assert kv.inspect(chain + server.url("/known.onnx"), timeout=60).model.nodes == 4


def zipped(data: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("m.onnx", data)
    return packed.getvalue()


@pytest.mark.parametrize("announced", [True, False])
def test_an_archive_without_ranges_is_copied_by_a_cache(server: Server, announced: bool) -> None:
    packed = zipped(model(3))
    if announced:
        server.ranges = False
        server.files["/m.zip"] = packed
    else:
        server.answers["/m.zip"] = body(lambda: iter([packed]))
    url = server.url("/m.zip")
    with pytest.raises(kv.UnreadableModel, match="its server sends no ranges") as caught:
        kv.inspect("zip://m.onnx::" + url)
    assert "put `simplecache::` in front" in (caught.value.help or "")
    assert kv.inspect("zip://m.onnx::simplecache::" + url).model.nodes == 4


def test_a_range_is_read_as_far_as_it_was_asked_for(server: Server) -> None:
    data = model(3, about=0)
    padded = data + FIELDS[: 4 * ((70000 - len(data)) // 4)]

    def answer(handler: Handler) -> None:
        first = int(handler.headers["Range"].removeprefix("bytes=").partition("-")[0])

        def pieces() -> Iterator[bytes]:
            yield padded[first:]
            yield from endless(bytes(1 << 16))()

        where = f"bytes {first}-{len(padded) - 1}/{len(padded)}"
        body(pieces, 206, Content_Range=where)(handler)

    server.answers["/m.onnx"] = answer
    assert kv.inspect(server.url("/m.onnx"), timeout=20).model.nodes == 4


def test_what_comes_packed_is_unpacked(server: Server, tmp_path: Path) -> None:
    packed = gzip.compress(model())
    server.answers["/m.onnx"] = body(lambda: iter([packed]), Content_Encoding="gzip")
    (tmp_path / "m.onnx").write_bytes(model())
    assert kv.print(server.url("/m.onnx")) == kv.print(str(tmp_path / "m.onnx"))


def test_more_than_was_announced_is_not_read(server: Server) -> None:
    """A data file that is longer than any server says it is."""
    server.files["/m.onnx"] = model(external="w.data")
    server.answers["/w.data"] = body(endless(bytes(1 << 16)), 206, Content_Range="bytes 0-9/10")
    with pytest.raises(kv.UnreadableModel, match=r"ends at byte 10, and 140 are needed"):
        kv.print(server.url("/m.onnx"), timeout=20)


@part(2)
@pytest.mark.parametrize("command", ["inspect", "check", "infer", "print", "diff"])
def test_a_request_is_bounded(server: Server, kvtool, command: str) -> None:  # type: ignore[no-untyped-def]
    server.delay = 3
    server.files["/m.onnx"] = model()
    url = server.url("/m.onnx")
    models = (url, url) if command == "diff" else (url,)
    result = kvtool(command, *models, "--timeout", "0.2")
    assert result.exit_code == 3
    assert "a request to it took too long" in result.stderr
    assert "allow more with `--timeout SECONDS`" in result.stderr


@pytest.mark.parametrize("chain", ["simplecache::", "zip://m.onnx::"])
def test_a_request_behind_another_is_bounded(server: Server, chain: str) -> None:
    server.delay = 3
    server.files["/m.onnx"] = model()
    with pytest.raises(kv.UnreadableModel, match="took too long") as caught:
        kv.inspect(chain + server.url("/m.onnx"), timeout=0.2)
    assert caught.value.help == "allow more with `timeout=SECONDS`"


@each("value", ["0", "-1", "nan", "soon"])
def test_what_is_no_time(kvtool, value: str) -> None:  # type: ignore[no-untyped-def]
    result = kvtool("inspect", "https://example.invalid/m.onnx", "--timeout", value)
    assert result.exit_code == 2
    assert "a number of seconds above 0" in result.stderr
    if value in ("0", "-1"):
        with pytest.raises(UsageError, match="`timeout` is"):
            kv.inspect("https://example.invalid/m.onnx", timeout=int(value))


@part(2)
@pytest.mark.parametrize("chain", ["", "simplecache::"])
@pytest.mark.parametrize("command", ["inspect", "check", "infer", "print", "diff"])
def test_a_redirect_to_another_server_is_said(
    server: Server, kvtool, command: str, chain: str
) -> None:  # type: ignore[no-untyped-def]
    with serving() as other:
        other.files["/cdn/m.onnx"] = model()
        server.answers["/m.onnx"] = to(other.url("/cdn/m.onnx?signature=hunter2"))
        url = server.url("/m.onnx", "user:hunter2@")
        models = (chain + url,) * (2 if command == "diff" else 1)
        result = kvtool(command, *models)
        said = " ".join((result.stdout + result.stderr).split())
        told = f"`{server.url('/m.onnx')}` redirects to another server, `{other.url('')}`"
        assert said.count(told) == 1
        assert "hunter2" not in said


def test_a_redirect_of_the_data_is_said(server: Server, kvtool) -> None:  # type: ignore[no-untyped-def]
    with serving() as other:
        other.files["/w.data"] = bytes(140)
        server.files["/m.onnx"] = model(external="w.data")
        server.answers["/w.data"] = to(other.url("/w.data"))
        assert other.url("") in kvtool("print", server.url("/m.onnx")).stderr


def test_a_redirect_on_one_server_is_not_said(server: Server) -> None:
    server.files["/m.onnx"] = model()
    assert kv.inspect(server.url("/moved/m.onnx")).notes == ()
