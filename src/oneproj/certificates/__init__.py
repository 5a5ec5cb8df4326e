"""Certificates: what can be proved about the point that the parameters hold now."""
