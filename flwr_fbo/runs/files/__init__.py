"""The files of a run directory: settings, checkpoint, releases, rounds, journals."""


class RunDirectoryError(RuntimeError):
    """An error for a run directory that cannot be used; the text names the file and the fault."""


class WrongRunDirectoryError(RunDirectoryError):
    """An error for a directory that was named by mistake: no run is there, or another one."""
