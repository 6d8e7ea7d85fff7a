"""Running models: two runtimes behind one interface, seeded inputs, and comparison of outputs."""
