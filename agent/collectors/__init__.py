"""One signal of the node per file; `registry` is the table of them all."""
