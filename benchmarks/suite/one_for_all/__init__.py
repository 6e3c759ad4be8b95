"""One setting for all under one party's epsilon: the vote, our recommendation, fed-pne, random.

The commands are in :mod:`benchmarks.suite.one_for_all.__main__`.
"""
