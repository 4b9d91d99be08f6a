"""Patterns that only two sides together show: each module finds one (perfci/diagnosis/pair_rules.py)."""
