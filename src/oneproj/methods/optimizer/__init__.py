"""What ``OneProjection`` is made of, beside Algorithm 1 itself.

``start`` prepares a run and ``base_steps`` its torch optimisers; ``edge`` makes a step
that ends in the ball. ``checks`` says what is refused and warned of. ``nested`` shows,
saves and copies, and ``saved`` refuses states of something else.
"""
