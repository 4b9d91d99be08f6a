"""A folder for PYTHONPATH. It holds ``sitecustomize`` and nothing else."""
