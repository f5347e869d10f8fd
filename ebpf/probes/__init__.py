"""The probes: for each its shared header, its BPF program and its user side, of one stem."""
