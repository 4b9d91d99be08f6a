"""Joins the layers for a use case: measure, import, compare. The only part that knows all layers."""
