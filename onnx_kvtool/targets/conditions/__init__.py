"""The conditions of `targets/runtimes.toml`, by what they ask."""
