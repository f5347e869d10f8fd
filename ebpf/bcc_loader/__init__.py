"""The loader for kernels without BTF: bcc in a helper process under the system's Python, tracepoint formats only."""
