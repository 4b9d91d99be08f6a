"""The only reader of YAML: perfci.yaml, workload.yaml and baselines/. Unknown keys are errors with file and line."""
