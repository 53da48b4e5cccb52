"""What goes wrong, each with one sentence for a reader."""


class Error(RuntimeError):
    """Of everything that Rubato raises."""


class Refused(Error):
    """Something about the script that a job on parameter servers cannot keep. Repeating does not help."""


class Ended(Error):
    """The job has come to an end that is not its own.

    Attributes:
        exit_code: as in docs/runs.md; 2 where repeating cannot help.
    """

    def __init__(self, reason: str, exit_code: int):
        super().__init__(reason)
        self.exit_code = exit_code
