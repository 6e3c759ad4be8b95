"""The four papers' figures, run again: ``python -m benchmarks.reproduce --list``.

``figures.py`` says what a figure is, ``checks.py`` how a verdict follows from measurements,
``drivers.py`` and its neighbours what one run does, ``store.py`` how results are kept. A module
for each paper holds its table of figures.
"""
