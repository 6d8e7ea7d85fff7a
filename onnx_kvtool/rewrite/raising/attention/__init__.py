"""Attention in many nodes, read by what it computes, as one Attention-24."""
