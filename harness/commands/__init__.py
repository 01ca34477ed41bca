"""The subcommands of ``harness``, one module each, holding a click command named ``command``."""
