"""Rules below opset 11, of which each takes an operator one opset down: to 10, or from there to 9.

They read what the rules for opset 11 have written, once its types and shapes are inferred.
"""
