"""A decoder in onnxruntime: prompts, steps, and caches in place."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnx_kvtool.analysis.caches import find_caches
from onnx_kvtool.core.errors import KvtoolError, UsageError
from onnx_kvtool.core.walk import is_op, nodes
from onnx_kvtool.core.words import enumerated
from onnx_kvtool.decoding.bound import BoundSession
from onnx_kvtool.decoding.choice import Tokens, choosing
from onnx_kvtool.decoding.kept import Feeder, Form, Hold, KeptCaches, in_place
from onnx_kvtool.model_io.model import origin, serialize
from onnx_kvtool.model_io.model_source import ModelSource, open_model
from onnx_kvtool.ops.operators import Attention
from onnx_kvtool.runtime.sessions import Array, running_on
from onnx_kvtool.shapes.inference import infer_model
from onnx_kvtool.symbolic.dimensions import dims_of
from onnx_kvtool.verification.inputs.plan import InputPlan, plan

_ROOM = 256
"""Rows of a cache beyond the prompt, if the caller gives no capacity."""

_BLOCK = 512
"""Tokens of a block of a long prompt; for each block, Attention computes all scores at once."""


class Decoder:
    """A decoder of any form, driven in onnxruntime as a good host drives it.

    Caches of a fixed size start as zeros and are updated in place if the model allows it: past and
    present share a buffer. Other caches of a fixed size have two buffers, which take turns. Growing
    caches are passed on as onnxruntime made them. GroupQueryAttention gets one buffer of `capacity`
    rows for past and present. All sequences of a batch have the same length, without padding.

    A model that takes a fixed number of tokens at a time gets longer prompts in parts. If all its
    caches are linear, the last part is padded on the right; the next step overwrites these rows.
    A model that takes any number gets 512 at a time if its caches are linear and updated in place,
    no inputs but positions are given, and no Attention shows later tokens.

    Args:
        model: A model (an `onnx_ir.Model` or an `onnx.ModelProto`), which is not changed, or the
            path of one; or several that share the same caches and take other numbers of tokens, as
            `kvtool raise --phases` makes them.
        capacity: Rows of caches whose number of rows is not fixed by the model; None for the
            prompt and 256 more.
        threads: Threads per node; None for one per core.
        provider: An execution provider that the installed onnxruntime has, `NAME[,key=value...]`;
            None for that of the CPU. With another one, no cache is updated in place.
        dims: Sizes of symbolic dimensions that are neither sequences nor rows.
        embed: Returns the hidden states (B, S, E) of tokens (B, S), for a model that takes these
            (`inputs_embeds`) instead of tokens.

    Attributes:
        form: `growing` if a cache gains rows, `contrib` if operators of onnxruntime keep it,
            `fixed` if all have a fixed number of rows, `none` without a cache.
        in_place: Whether every cache is updated in place.
        length: Tokens of each sequence so far.

    Raises:
        UnreadableModel: If the model cannot be read.
        KvtoolError: If onnxruntime does not load it.

    Examples:
        >>> decoder = kv.Decoder("decoder.onnx")
        >>> decoder.form, decoder.in_place
        ('fixed', True)
        >>> decoder.generate([[5, 3, 7]], steps=4).shape
        (1, 4)
        >>> decoder.length
        6
    """

    def __init__(
        self,
        model: ModelSource | Sequence[ModelSource],
        *,
        capacity: int | None = None,
        threads: int | None = None,
        provider: str | None = None,
        dims: Mapping[str, int] | None = None,
        embed: Callable[[Tokens], npt.ArrayLike] | None = None,
    ) -> None:
        for name, number in (("capacity", capacity), ("threads", threads)):
            if number is not None and number < 1:
                raise UsageError(f"`{name}` is {number}, expected at least 1")
        sources = model if isinstance(model, Sequence) and not isinstance(model, str) else [model]
        if not sources:
            raise UsageError("there is no model to run")
        works = [open_model(source) for source in sources]
        self._name = ", ".join(origin(work).name for work in works)
        plans = [plan(work) for work in works]
        _check_alike(plans)
        self._capacity, self._dims = capacity, {**_known_dims(works[0], plans[0]), **(dims or {})}
        with running_on(provider):
            parts = [_Part(work, means, threads) for work, means in zip(works, plans, strict=True)]
            self._parts = sorted(parts, key=lambda part: part.tokens or math.inf)
            for holds in zip(*(part.holds for part in self._parts), strict=True):
                holds[0].is_shared = all(hold.is_shared for hold in holds)
            self._caches = KeptCaches(self.session, self._parts[0].holds)
        self._plan = self._parts[0].plan
        self.form: Form = self._caches.form
        self._embed = embed
        self._crossed = _crossed(self._plan, self.session.outputs)
        self._feeders: dict[_Part, Feeder] = {}
        self.length = 0

    def __repr__(self) -> str:
        facts = f"form={self.form!r}, in_place={self.in_place}, length={self.length}"
        return f"Decoder({self._name!r}, {facts})"

    @property
    def session(self) -> BoundSession:
        """The session of the model; of several models, of the one that takes the fewest tokens."""
        return self._parts[0].session

    @property
    def sessions(self) -> list[BoundSession]:
        """The sessions of all models, beginning with `session`."""
        return [part.session for part in self._parts]

    @property
    def parts(self) -> list[int]:
        """The number of new tokens that each model takes at a time; empty for any number."""
        return [part.tokens for part in self._parts if part.tokens is not None]

    @property
    def room(self) -> float:
        """The number of tokens that the caches have rows for; infinity without a limit."""
        return self._caches.room

    @property
    def in_place(self) -> bool:
        """Whether every cache is updated in place; False without a cache."""
        return in_place(self._parts[0].holds)

    @property
    def takes_tokens(self) -> bool:
        """Whether the model takes token ids; else its hidden states are random."""
        return bool(self._plan.with_role("token_ids"))

    @property
    def vocabulary(self) -> int | None:
        """The number of tokens in the vocabulary; None if unknown."""
        return next((spec.uses.rows for spec in self._plan.with_role("token_ids")), None)

    def prefill(
        self, ids: npt.ArrayLike, inputs: Mapping[str, npt.ArrayLike] | None = None
    ) -> Array:
        """Forget all, take in a prompt, and return its logits.

        Args:
            ids: (B, S) or (S,): the tokens of each sequence; or (B, S, E), floats: their hidden
                states, for a model that takes those.
            inputs: Other inputs by name, such as what an encoder has found, which every step is
                given as well; but positions, as (3, B, S), which go on after the largest of each
                sequence. What is left out, and has a meaning that is unknown, is drawn.

        Returns:
            (B, S, V), or what the first output that is no cache has for a shape.

        Raises:
            UsageError: If `ids` are no tokens, `inputs` none that a caller gives, or there is no
                room for them.
            KvtoolError: If the model fails on them.
        """
        tokens = _tokens(ids)
        batch, length = tokens.shape[:2]
        self.length = 0
        room = self._capacity if self._capacity is not None else length + _ROOM
        self._feeders = {
            part: Feeder(part.plan, batch, room, self._dims, inputs, prompt=length)
            for part in self._parts
        }
        positions = {spec.name for spec in self._plan.with_role("position_ids")}
        self._cuts = positions.issuperset(inputs or ())
        part, number = self._next(length, math.inf)
        self._caches.empty(self._feeders[part].layout(0, number).shapes, room)
        return self.step(tokens)

    def step(self, ids: npt.ArrayLike) -> Array:
        """Take in the next tokens of every sequence, and return their logits.

        Args:
            ids: (B, S): tokens; (B,): one of each sequence; (B, S, E): as of `prefill`.

        Raises:
            UsageError: If there was no prompt, `ids` are of another batch, or there is no room.
            KvtoolError: If the model fails on them.
        """
        tokens = np.asarray(ids)
        tokens = _tokens(tokens[:, None] if tokens.ndim == 1 else tokens)
        if not self._feeders:
            raise _no_prompt()
        self._caches.check_room(self.length, tokens.shape[1])
        states = self._embedded(tokens)
        made: list[Array] = []
        while states.shape[1]:
            part, count = self._next(states.shape[1], self._caches.room - self.length)
            made.append(self._run(part, states[:, :count]))
            states = states[:, count:]
        rows = sum(logits.shape[1] for logits in made if logits.ndim > 2)
        is_of_each = len(made) > 1 and rows == tokens.shape[1]
        return np.concatenate(made, axis=1) if is_of_each else made[-1]

    def _next(self, left: int, room: float) -> tuple[_Part, int]:
        """Return the part that takes the next tokens, and how many of them.

        Args:
            left: Tokens that are left.
            room: Rows for them and their padding.
        """
        whole = [part for part in self._parts if part.takes(left, room)]
        if whole:
            part = min(whole, key=lambda part: part.tokens or left)
            return part, min(left, _BLOCK) if part.is_cut and self._cuts else left
        fewer = [part for part in self._parts if part.tokens and part.tokens < left]
        if not fewer:
            sizes = enumerated([str(part.tokens) for part in self._parts])
            raise UsageError(
                f"there are {left} new tokens, and the model takes {sizes} at a time",
                help="add a model for one token: `kv.Decoder((prefill, decode))`",
            )
        part = max(fewer, key=lambda part: part.tokens or 0)
        return part, part.tokens or left

    def _run(self, part: _Part, states: Array) -> Array:
        """Run one model on tokens, padded to the number that it takes; return their logits."""
        count = states.shape[1]
        more = max((part.tokens or count) - count, 0)
        filled = np.pad(states, [(0, 0), (0, more), *[(0, 0)] * (states.ndim - 2)])
        try:
            arrays = self._feeders[part].feeds(filled, self.length, count)
        except MemoryError as error:
            raise UsageError(
                f"the inputs of {count} tokens behind {self.length} others do not fit"
                " into the memory",
                help="use a shorter prompt or fewer steps",
            ) from error
        made = part.session.run(arrays, self._caches.pasts, self._caches.targets)
        self._caches.take(made)
        if not self.length:
            crossed = {past: made[end].read() for past, end in self._crossed.items()}
            for feeder in self._feeders.values():
                feeder.keep(crossed)
        self.length += count
        logits = made[part.logits].read()
        return logits[:, :count] if more else logits

    def generate(
        self,
        ids: npt.ArrayLike,
        steps: int,
        inputs: Mapping[str, npt.ArrayLike] | None = None,
        *,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        stop: Collection[int] = (),
    ) -> Tokens:
        """Return the tokens after a prompt, each chosen by the logits of the one before it.

        Args:
            ids: (B, S) or (S,): the prompt of each sequence, as a tokenizer gives it; or its
                hidden states (B, S, E).
            steps: Most tokens to return, at least 1.
            inputs: As of `prefill`; an input whose meaning is unknown may not be left out.
            temperature: 0 takes the likeliest token. Else one is drawn, with the odds of
                softmax(logits / temperature).
            top_k: Draw among so many of the likeliest tokens; None for all.
            top_p: Draw among the likeliest of these whose odds add up to this; None for 1.
            seed: Seed of the draws: the same logits and seed give the same tokens.
            stop: Tokens that end a sequence, such as the `eos_token_id` of a tokenizer.

        Returns:
            (B, N), int64, with N = `steps`, or less if every sequence has ended. After its end, a
            sequence repeats the token that ended it.

        Raises:
            UsageError: If the model takes no tokens and there is no `embed`, a number is out of its
                range, or as `prefill` and `step`.
            KvtoolError: If the model fails.
        """
        if not self.takes_tokens and self._embed is None:
            raise UsageError(
                "kvtool finds no input for token ids",
                help="for a model that takes hidden states, give the embedding with `embed`",
            )
        if steps < 1:
            raise UsageError(f"`steps` is {steps}, expected at least 1")
        choose = choosing(temperature, top_k, top_p, seed)
        prompt = _tokens(ids)
        if self._capacity is None and (
            "capacity" in self._plan.kinds.values() or self._caches.are_counted
        ):
            self._capacity = prompt.shape[1] + steps
        drawn = Feeder(self._plan, len(prompt), None, self._dims, inputs).drawn
        if unknown := [name for name in drawn if name not in self._crossed]:
            raise UsageError(
                f"kvtool does not know what to feed as {enumerated(unknown)}",
                help="give it by name in `inputs`",
            )
        chosen = [choose(self.prefill(prompt, inputs))]
        while len(chosen) < steps:
            ended = np.isin(chosen[-1], [*stop])
            if ended.all():
                break
            chosen.append(np.where(ended, chosen[-1], choose(self.step(chosen[-1]))))
        return np.stack(chosen, axis=1)

    def fill(self, length: int) -> None:
        """Continue as after `length` tokens; new rows of caches are zeros.

        This times steps of a long context without a long prompt.

        Raises:
            UsageError: If there was no prompt, or there is no room.
        """
        if not self._feeders:
            raise _no_prompt()
        if length < self.length:
            raise UsageError(f"`length` is {length}, expected at least {self.length}")
        self._caches.check_room(self.length, length - self.length)
        self._caches.lengthen(length)
        self.length = length

    def _embedded(self, tokens: Array) -> Array:
        """Return the hidden states of tokens if the model takes these and they are known."""
        if tokens.ndim == 2 and not self.takes_tokens and self._embed is not None:
            tokens = np.asarray(self._embed(tokens.astype(np.int64)))
            if tokens.ndim != 3:
                text = f"`embed` made an array of shape {tokens.shape}, expected (B, S, E)"
                raise UsageError(text)
        if tokens.ndim == 3 and self._feeders[self._parts[0]].embeddings is None:
            raise UsageError("kvtool finds no input for the hidden states of tokens")
        return tokens


class _Part:
    """One of the models of a decoder.

    Args:
        work: The model.
        plan: The plan of its inputs.
        threads: As for `Decoder`.

    Attributes:
        plan: As above.
        holds: Its caches.
        session: The loaded model.
        logits: Name of the output that is no cache.
        tokens: New tokens that it takes at a time; None for any number.
        is_cut: Whether long prompts are faster in blocks.
    """

    def __init__(self, work: ir.Model, plan: InputPlan, threads: int | None) -> None:
        self.plan = plan
        path = origin(work).path
        directory = os.path.dirname(os.path.abspath(path)) if path not in ("", "-") else ""
        self.tokens = _fixed_tokens(plan)
        found = find_caches(work, prove=self.tokens is not None)
        caches = {cache.past: cache for cache in found}
        pairs = sorted(plan.pairs, key=lambda pair: pair.past)
        self.holds = [Hold(pair, caches.get(pair.past)) for pair in pairs]
        presents = {pair.present for pair in plan.pairs}
        rest = [value for value in work.graph.outputs if value.name not in presents]
        if not rest:
            raise KvtoolError("the model has no output but its caches")
        logits = next((v for v in rest if "logits" in (v.name or "").lower()), rest[0])
        self.logits = logits.name or ""
        rows = dims_of(logits) or ()
        keeps = all(hold.keeps_rows for hold in self.holds)
        self._pads = len(rows) > 2 and rows[1] == self.tokens and keeps
        self.is_cut = self.tokens is None and keeps and in_place(self.holds)
        self.is_cut = self.is_cut and not _sees_later_tokens(work)
        self.session = BoundSession(serialize(work), directory, threads)

    def takes(self, left: int, room: float) -> bool:
        """Return whether it takes so many tokens at once, padded if there are rows for that."""
        if self.tokens is None or self.tokens == left:
            return True
        return self._pads and left < self.tokens <= room


def _sees_later_tokens(model: ir.Model) -> bool:
    """Return whether an Attention over a cache shows later tokens."""
    opset = model.opset_imports.get("", 0)
    found = (node for _, _, node in nodes(model) if is_op(node, "Attention"))
    return any(
        (view.nonpad_kv_seqlen or view.past_key) and not (view.is_causal or view.attn_mask)
        for view in (Attention(node, opset) for node in found)
    )


def _fixed_tokens(plan: InputPlan) -> int | None:
    """Return the number of new tokens, or of their hidden states, that a model takes at a time."""
    shapes = [spec.shape[-1:] for spec in plan.with_role("token_ids")]
    name = Feeder(plan, 1, None, {}).embeddings
    shapes += [spec.shape[1:2] for spec in plan.inputs if spec.name == name]
    return next((size for (size,) in shapes if isinstance(size, int)), None)


def _check_alike(plans: Sequence[InputPlan]) -> None:
    """Refuse models that cannot share their caches."""
    caches = [
        {
            spec.name: (spec.name, pair.present, spec.dtype.name, spec.shape)
            for spec in means.inputs
            if (pair := means.pair_of(spec.name)) is not None
        }
        for means in plans
    ]
    for other in caches[1:]:
        for name in (*caches[0], *other):
            one, two = caches[0].get(name), other.get(name)
            if one != two:
                raise UsageError(
                    f"the models have different caches, and cannot hand them on: {one} and {two}",
                    help="make them of one model by `kvtool raise --phases`",
                )


def _known_dims(model: ir.Model, plan: InputPlan) -> dict[str, int]:
    """Return the sizes of symbolic dimensions of caches that operators fix.

    The caller decides on sequences and rows; the weights fix all others, numbers of heads and of
    their elements.
    """
    caches = {cache.past: cache for cache in find_caches(model, prove=False)}
    known = {
        dim: size
        for spec in plan.with_role("past_cache")
        if (cache := caches.get(spec.name)) is not None and cache.shape is not None
        for dim, size in zip(spec.shape, cache.shape, strict=True)
        if isinstance(dim, str) and isinstance(size, int)
    }
    kinds = plan.kinds
    if not {name for name, kind in kinds.items() if kind == "size"} <= known.keys():
        for equality in infer_model(model).report.equalities:
            if kinds.get(equality.name) == "size" and equality.equals.isdecimal():
                known.setdefault(equality.name, int(equality.equals))
    return known


def _no_prompt() -> UsageError:
    return UsageError("there is no prompt yet", help="begin with `prefill` or `generate`")


def _crossed(plan: InputPlan, outputs: Collection[str]) -> dict[str, str]:
    """Return the caches of an encoder that the first step computes, past to present.

    Only for a decoder whose condition says whether there are caches.
    """
    named = {spec.name: _PAST.sub("present", spec.name) for spec in plan.with_role("free")}
    has_branches = bool(plan.with_role("condition"))
    return {past: end for past, end in named.items() if has_branches and end in outputs}


_PAST = re.compile(r"^past(_key_values)?")


def _tokens(ids: npt.ArrayLike) -> Array:
    """Return tokens as (B, S); floats (B, S, E) unchanged."""
    try:
        tokens = np.asarray(ids)
    except ValueError as error:
        raise UsageError(
            "the prompts have different lengths, expected as many tokens of each sequence",
            help="give each prompt to a decoder by itself",
        ) from error
    if tokens.ndim == 3 and tokens.size and tokens.dtype.kind == "f":
        return tokens
    tokens = tokens[None] if tokens.ndim == 1 else tokens
    if tokens.ndim != 2 or not tokens.size or tokens.dtype.kind not in "iu":
        raise UsageError(
            f"the tokens are {tokens.dtype.name} of shape {tokens.shape},"
            " expected integers of shape (B, S)"
        )
    return tokens.astype(np.int64)
