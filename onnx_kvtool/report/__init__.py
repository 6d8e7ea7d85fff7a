"""How reports are written: text for people, JSON for programs."""
