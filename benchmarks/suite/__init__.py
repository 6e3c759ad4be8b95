"""The suite: federations made by others, on which any method can be judged by one command.

``python -m benchmarks.suite`` prints the commands; docs/evidence/suite.md explains them.
"""

#: The version of the suite. Results of different versions are never compared: federations, seeds,
#: budgets and scores are fixed by it.
VERSION = 1
#: Seeds of reported runs. Smaller seeds are for development, and are never reported.
REPORTED = tuple(range(7000, 7010))
