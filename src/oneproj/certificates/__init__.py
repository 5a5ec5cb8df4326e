"""Certificates: what can be proved about the point that the parameters hold now.

``certify`` chooses what applies. One file per measure: ``feasibility``, ``kkt``,
``gradient_mapping``, ``moreau``, ``penalty_residual`` and ``slope``. They move the
parameters to look around and restore them bit for bit. Behind them:

- ``strongly_convex``: minimise with a proof of the distance to the minimiser, from
  ``minorants``, a point to hold on to (``interior``) and a first guess (``sqp``);
- ``combination``: the shortest vector of a hull and a cone, for KKT and slopes;
- ``balance``: the multipliers behind KKT, with the ``normals`` of closed-form sets;
- ``oneproj.vectors.qp``: the tiny quadratic program under both.
"""
