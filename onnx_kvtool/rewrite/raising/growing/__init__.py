"""Caches that grow with every step, and what gives them a fixed capacity."""
