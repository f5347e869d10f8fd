"""The open-loop load generator, shaped by public traces of LLM requests."""
