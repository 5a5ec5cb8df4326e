"""Vectors of parameter size: lists of tensors, their arithmetic, and a small QP."""
