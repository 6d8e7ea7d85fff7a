"""One rule per file, named after its code and name."""
