"""Facts that several rules use, computed once."""
