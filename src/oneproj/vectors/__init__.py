"""Vectors of parameter size: lists of tensors, their arithmetic, and a small QP.

Authors of methods and projectors import the arithmetic from here.
"""

from oneproj.vectors.arithmetic import Vector as Vector
from oneproj.vectors.arithmetic import assign as assign
from oneproj.vectors.arithmetic import combine as combine
from oneproj.vectors.arithmetic import difference as difference
from oneproj.vectors.arithmetic import dimension as dimension
from oneproj.vectors.arithmetic import distance as distance
from oneproj.vectors.arithmetic import dot as dot
from oneproj.vectors.arithmetic import is_finite as is_finite
from oneproj.vectors.arithmetic import norm as norm
from oneproj.vectors.arithmetic import project_ball_ as project_ball_
from oneproj.vectors.arithmetic import rounding_unit as rounding_unit
from oneproj.vectors.arithmetic import snapshot as snapshot
