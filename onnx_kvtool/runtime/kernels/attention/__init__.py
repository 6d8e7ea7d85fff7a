"""Attention of three kinds, the rotary embedding, and the convolution that goes with a state."""
