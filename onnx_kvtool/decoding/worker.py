"""One decoder in its own process; it runs a round on request.

Its peak of memory is then measured by itself, and a crash in native code ends no other decoder.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.decoding.bound import BoundSession
from onnx_kvtool.decoding.choice import Tokens, likeliest
from onnx_kvtool.decoding.decoder import Decoder
from onnx_kvtool.decoding.kept import Form
from onnx_kvtool.decoding.profile import Profile, parts_of, profiled
from onnx_kvtool.model_io.model_source import ModelSource, open_model
from onnx_kvtool.model_io.places import members
from onnx_kvtool.runtime.errors import RunFailed, RuntimeUnavailable
from onnx_kvtool.runtime.memory import peak_memory, used_memory


class Loaded(NamedTuple):
    """Facts about a loaded decoder.

    Attributes:
        form: The form of its caches.
        in_place: Whether every cache is updated in place.
        vocabulary: Number of tokens; None if it is unknown.
    """

    form: Form
    in_place: bool
    vocabulary: int | None


class Round(NamedTuple):
    """One prompt and the steps after it.

    Attributes:
        first_token: Seconds from the prompt to its first token.
        steps: Seconds of each step.
        chosen: (B, N), the tokens.
        peak_bytes: Most memory so far, without that of the process before it loaded the model; None
            if the system does not say.
    """

    first_token: float
    steps: tuple[float, ...]
    chosen: Tokens
    peak_bytes: int | None


_CHILD = f"""
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the parent ends this process
from {__name__} import main
main()
"""


class Worker:
    """The process of one decoder.

    Args:
        model: Path of the model, or its bytes.
        name: What to call it in errors.
        capacity: Rows of caches whose number of rows the model does not fix.
        threads: Threads per node; None for one per core.
        provider: Execution provider; None for the CPU's.
        dims: Sizes of symbolic dimensions.

    Attributes:
        loaded: Facts about the decoder.

    Raises:
        RuntimeUnavailable: If no process can be started.
        KvtoolError: Whatever loading the model raises.
    """

    def __init__(
        self,
        model: str | bytes,
        name: str,
        *,
        capacity: int,
        threads: int | None,
        provider: str | None = None,
        dims: Mapping[str, int],
    ) -> None:
        self._name = name
        path = os.pathsep.join(part for part in sys.path if part)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CHILD],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": path},
            )
        except OSError as error:  # as where Python is embedded
            raise RuntimeUnavailable(
                f"no process can be started to run `{name}`: {error.strerror or error}"
            ) from error
        try:
            options = {"capacity": capacity, "threads": threads, "provider": provider}
            self.loaded: Loaded = self._ask((model, {**options, "dims": dict(dims)}))
        except BaseException:
            self.close()
            raise

    def round(self, ids: Tokens, context: int, steps: int) -> Round:
        """Run a prompt, extend the caches to a context, and generate tokens.

        Raises:
            KvtoolError: If the model fails, or ends its process.
        """
        found: Round = self._ask(("round", ids, context, steps))
        return found

    def profile(self, ids: Tokens, context: int, steps: int) -> Profile:
        """Run a round again in a session that onnxruntime profiles.

        Raises:
            KvtoolError: As `round`.
        """
        found: Profile = self._ask(("profile", ids, context, steps, self._name))
        return found

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _ask(self, question: object) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            pickle.dump(question, self._process.stdin)
            self._process.stdin.flush()
            answer = pickle.load(self._process.stdout)
        except (EOFError, OSError) as error:  # a pipe without an end is EINVAL on Windows
            code = self._process.wait()
            raise RunFailed(f"the process that ran `{self._name}` ended with {code}") from error
        if isinstance(answer, KvtoolError):
            raise answer
        return answer


def _serve(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer questions until there are no more."""
    before = used_memory()
    decoder: Decoder | None = None
    loading: tuple[Any, ...] = ()
    while True:
        try:
            question = pickle.load(questions)
        except EOFError:
            return
        answer: object
        try:
            if decoder is None:
                loading = question
                model, options = question
                decoder = Decoder(_sources(model), **options)
                answer = Loaded(decoder.form, decoder.in_place, decoder.vocabulary)
            elif question[0] == "profile":
                answer = _profile(loading, *question[1:])
            else:
                answer = _round(decoder, before, *question[1:])
        except KvtoolError as error:
            answer = error
        pickle.dump(answer, answers)
        answers.flush()


def _sources(model: str | bytes) -> Sequence[ModelSource]:
    import onnx

    paths = onnx.load_from_string(model) if isinstance(model, bytes) else members(model)
    return paths if isinstance(paths, list) else [paths]


def _profile(loading: tuple[Any, ...], ids: Tokens, context: int, steps: int, name: str) -> Profile:
    model, options = loading
    works = [open_model(source) for source in _sources(model)]
    parts = {name: part for work in works for name, part in parts_of(work).items()}

    def run() -> BoundSession:
        decoder = Decoder(works, **options)
        _round(decoder, None, ids, context, steps)
        for other in decoder.sessions[1:]:
            other.end_profiling()
        return decoder.session

    return profiled(run, parts, name)


def _round(decoder: Decoder, before: int | None, ids: Tokens, context: int, steps: int) -> Round:
    begin = time.perf_counter()
    chosen = [likeliest(decoder.prefill(ids))]
    first = time.perf_counter() - begin
    decoder.fill(max(context, decoder.length))
    seconds = []
    for _ in range(steps - 1):
        begin = time.perf_counter()
        chosen.append(likeliest(decoder.step(chosen[-1])))
        seconds.append(time.perf_counter() - begin)
    peak = peak_memory()
    taken = None if peak is None or before is None else max(peak - before, 0)
    return Round(first, tuple(seconds), np.stack(chosen, axis=1), taken)


def main() -> None:
    """Run as the process of a `Worker`."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    _serve(sys.stdin.buffer, answers)
