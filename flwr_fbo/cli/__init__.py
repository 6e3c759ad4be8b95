"""The command line: the command ``flwr-fbo`` and its subcommands, joined by ``main``."""
