"""Attention in many nodes: found by what it computes, and not by how an exporter writes it."""
