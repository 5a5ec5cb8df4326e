"""What ``solve`` adds to Algorithm 1 where the theorems leave off.

``defaults`` are steps that nobody gave. ``strength`` finds the penalty's, from a
``balance`` of gradients and with ``patience``. ``alarm`` warns. ``scheduled`` adds
nothing: a theorem has it all.
"""
