"""What the runner tells a launch."""

from perfci.probe.locations import environment


def plan(out, *, warmup=4, wall=4, capture=2, probe=None):
    """Variables of the runner for a launch that writes ``out``/sidecar.json, under the probe of a checkout if given."""
    out.mkdir(parents=True, exist_ok=True)
    values = {
        "PERFCI_SIDECAR": str(out / "sidecar.json"),
        "PERFCI_CAPTURE": "off",
        "PERFCI_WARMUP_STEPS": str(warmup),
        "PERFCI_WARMUP_CAP": str(warmup),
        "PERFCI_WALL_STEPS": str(wall),
        "PERFCI_CAPTURE_STEPS": str(capture),
        "PERFCI_TORCH_TRACE": str(out / "trace.json"),
    }
    return values if probe is None else values | environment(probe)
