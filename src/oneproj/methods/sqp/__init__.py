"""SciPy's SLSQP, one update at a time.

A ``dialogue`` answers SciPy's loop from outside, a ``memory`` asks for each value once,
and ``stages`` begin it again, in units of the problem's own: of the terms there, and of
the parameters in ``coordinates``.
"""
