"""Ways out for metrics, one per file; `registry` is the table of them all."""
