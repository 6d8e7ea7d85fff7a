"""Operators that rearrange, repeat or describe values without computing new elements.

Versions of Concat, Pad, Reshape, Split and Tile from opset 1 have no kernel here.
"""
