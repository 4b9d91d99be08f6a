"""Says why: what differs between the kernels of two sides, and which known performance patterns a trace shows."""
