"""Files of models and of their data: read, judged safe, written whole, placed."""
