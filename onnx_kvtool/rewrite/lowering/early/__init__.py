"""Rules below opset 11: each lowers an operator by one opset, to 10 or from 10 to 9.

They read what the rules for opset 11 have written, once its types and shapes are inferred.
"""
