"""Measuring: revisions, checkouts, process launches and the machine they run on. Knows the model, no other layer."""
