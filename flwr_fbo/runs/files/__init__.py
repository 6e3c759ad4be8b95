"""The files of a run directory: settings, checkpoint, releases, rounds, journals."""


class RunDirectoryError(RuntimeError):
    """A run directory cannot be used; the message names the file and the fault."""
