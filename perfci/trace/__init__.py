"""Reads profiler traces: reader → raw columns → steps and attribution → Timeline → Extraction."""
