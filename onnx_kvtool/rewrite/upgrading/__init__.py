"""Rules that bring a node of an older opset to a later one, one file per family of operators."""
