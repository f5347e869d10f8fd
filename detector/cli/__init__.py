"""The `tailcause` command: one file per subcommand."""
