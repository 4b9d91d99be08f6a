"""From a comparison to what reviewers see on GitHub: events, renderers, and one port over github3.py."""
