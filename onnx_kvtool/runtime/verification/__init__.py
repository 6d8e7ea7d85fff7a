"""Two models compared by running them: one engine for `verify`, `lower` and `raise`."""
