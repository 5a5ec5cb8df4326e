"""Certificates: what can be proved about the point that the parameters hold now.

``certify`` chooses the measures that apply. They move the parameters to evaluate other
points, and restore them bit for bit.

- ``kkt``: the worst residual on all data, the KKT residual with its multipliers, and
  the gradient mapping;
- ``proximal``: the Moreau residual and the penalty residual, distances to a proximal
  point, which ``strongly_convex`` finds by cutting planes, with a proof of the error;
- ``assumptions``: tests that can refute what a theorem assumes, and the slope check;
- ``tolerances``: every number that these files choose.
"""
