"""From runs to verdicts: samples, effects with intervals, one error rate for all gates. Pure functions over the model.

The decision rule in prose: docs/statistics.md. Nothing here reads a clock, a file or the environment.
"""
