"""Masks, and what is written through them."""

from __future__ import annotations

from tests.rewrite.raising.decoys.decoy import Decoy
from tests.rewrite.raising.forms import CACHE, START, graph, one_hot

__all__ = ["DECOYS"]

DECOYS = {
    "the mask runs along the heads": Decoy(one_hot(axes="2, 3", places="int64[1,3] {0, 1, 2}")),
    "the mask keeps what it should replace": Decoy(
        one_hot(select="present = Where (m, cache, upd)")
    ),
    "the mask is an input": Decoy(
        graph(f"{CACHE}, float[2,3,1,7] upd, bool[2,1,5,1] m", "present = Where (m, upd, cache)")
    ),
    "the mask is set up to a position": Decoy(one_hot("hit = Greater (starts, places)")),
    "the mask is set at two positions": Decoy(
        one_hot(
            "one = Equal (starts, places)\n more = Add (starts, first)\n"
            "two = Equal (more, places)\n"
            "hit = Or (one, two)"
        )
    ),
    "the mask is set at every second position": Decoy(
        one_hot(
            "two = Constant <value = int64 {2}> ()\n odd = Mod (places, two)\n"
            "hit = Equal (starts, odd)"
        )
    ),
    "the mask is that of a table with a value twice": Decoy(
        one_hot(places="int64[1,5] {0, 1, 2, 2, 4}")
    ),
    "the mask is set at half the position": Decoy(
        one_hot("twice = Add (starts, starts)\n hit = Equal (twice, places)\n").replace(
            "hit = Equal (twice, places)",
            "odd = Add (places, places)\n"
            "shifted = Sub (odd, first)\n hit = Equal (starts, shifted)",
        )
    ),
    "as many rows as the cache has, of which one is taken": Decoy(
        one_hot(inputs=f"{CACHE}, float[2,3,5,7] upd, {START}")
    ),
    "the row is broadcast over heads": Decoy(
        one_hot(inputs=f"{CACHE}, float[2,1,1,7] upd, {START}")
    ),
    "the row is broadcast over sequences": Decoy(
        one_hot(inputs=f"{CACHE}, float[1,3,1,7] upd, {START}")
    ),
    "the cache is broadcast over sequences": Decoy(
        one_hot(inputs=f"float[1,3,5,7] cache, float[2,3,1,7] upd, {START}")
    ),
    "masked products with one mask": Decoy(
        one_hot(
            select="f = Cast <to = 1> (m)\n a = Mul (cache, f)\n b = Mul (upd, f)\n"
            "present = Add (a, b)"
        )
    ),
    "masked products with masks of two positions": Decoy(
        one_hot(
            "more = Add (starts, first)\n hit = Equal (starts, places)\n"
            "other = Equal (more, places)",
            select="f = Cast <to = 1> (m)\n om = Unsqueeze (other, axes)\n g = Cast <to = 1> (om)\n"
            "one = Constant <value = float {1}> ()\n keep = Sub (one, g)\n"
            "a = Mul (cache, keep)\n b = Mul (f, upd)\n present = Add (a, b)",
        )
    ),
    "masked products whose mask is doubled": Decoy(
        one_hot(
            select="f = Cast <to = 1> (m)\n two = Constant <value = float {2}> ()\n"
            "g = Mul (f, two)\n"
            "one = Constant <value = float {1}> ()\n keep = Sub (one, f)\n"
            "a = Mul (cache, keep)\n b = Mul (g, upd)\n present = Add (a, b)",
        )
    ),
    "what is kept is not scaled": Decoy(
        one_hot(
            select="f = Cast <to = 1> (m)\n b = Mul (f, upd)\n present = Add (cache, b)",
        )
    ),
}
