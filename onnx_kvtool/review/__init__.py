"""Reviews of models: as text, and how one differs from another."""
