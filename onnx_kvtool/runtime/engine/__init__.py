"""The reference runtime: a model compiled to steps over numbered slots, and run by kernels."""
