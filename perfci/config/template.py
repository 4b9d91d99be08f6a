"""The commented perfci.yaml that ``perfci init`` writes."""

TEMPLATE = """\
# perfci configuration. Keys, types and defaults: `perfci config schema`; prose: docs/configuration.md
version: 1

# Where runs are kept. A relative SQLite path starts at this file; PostgreSQL: postgresql+psycopg://user@host/db
database: sqlite:///.perfci/perfci.db

workloads:
  # A folder with a workload.yaml (globs allowed), for example:
  # - workloads/*
  # or a workload written out here:
  - name: train
    title: our training script
    command: python train.py
    # directory: .              # folder to run in, below the repository root
    # phases: [tokenize]        # your own phases; empty: every marked range inside a step
    # env: {BATCH_SIZE: "32"}
    # prepare: python setup.py build_ext --inplace   # once per revision, before measuring

measure:
  warmup_steps: 10      # flagged, never judged
  wall_steps: 50        # timed with no profiler attached: the wall time that is judged
  capture_steps: 30     # profiled: phases and counts
  timeout_s: 600
  collector: auto       # nsys when it is installed, else torch

judge:
  error_rate: 1%        # chance of any false alarm in one comparison of equal code
  min_launches: 3       # process launches per side
  max_launches: 12
  max_minutes: 30
  # gates:              # checks that can fail; without this key the built-in gates apply (docs/configuration.md)
  #   - {metric: unprofiled_wall_ns, phase: step, budget: 2%}
  #   - {metric: gpu_busy_ns, phase: step, budget: 1%}
  #   - {metric: sync_count, phase: step}          # exact: one more is a finding

environment:
  allow: []             # variables of the runner that the measured process may see; tokens never
  key: {}               # additions to the comparability key, for example {rack: a12}
"""
