"""Secure sums: a server learns a noisy sum of the parties' vectors, and no single vector.

The protocol is that of Bonawitz and others (CCS 2017), with the neighbour graph of Bell and others
(CCS 2020) where there are many parties. docs/reference/secure-sum.md specifies it on one page, with
test
vectors. The package imports no Flower and can be read alone, in this order:

- :mod:`terms`: what all parties and the server must agree on before a sum.
- :mod:`noise_share`: the noise that each party adds to its own vector.
- :mod:`primitives`: key agreement, expansion of keys to masks, encryption, confirmation codes.
- :mod:`shamir`: secrets that are shared so that any t of n shares recover them.
- :mod:`graph`: which parties mask with which, and how many of them recover a secret.
- :mod:`party` and :mod:`collector`: the two state machines, one method for each leg.
- :mod:`identity`: signatures by which parties know each other's keys, whatever the server says.

**Nobody outside the project has reviewed this protocol or this code.**
"""
