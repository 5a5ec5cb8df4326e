"""Nonconvex constraints: models at the present point; the answer is nearest locally.

``local`` is the method, ``stepper`` its steps and ``line_search`` their lengths. They
know places of a ``chart``, which has coordinates (``frame``), learns the ``curvature``
and makes the ``model`` of a step. Where models fail, ``bracket`` and ``descent`` help.
"""
