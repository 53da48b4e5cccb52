"""What tests share that run Rubato's programs and scripts with torch."""

import os
import pathlib
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests"))
from skipped import skip

PYTHON = sys.executable
TRAIN = str(HERE / "train.py")
ROOT = pathlib.Path(os.path.abspath(sys.argv.pop(1))).parent.parent  # of `rubato`: where Bazel has all of them
PROGRAMS = [str(ROOT / name) for name in ("tools/rubato", "server/rubato-server", "worker/rubato-worker")]


def need_torch(suite, case):
    """Ends the process where there is none: its test is skipped."""
    try:
        import torch  # noqa: F401
    except ImportError:
        skip(suite, case, "python3-torch is not installed")


class WithPrograms(unittest.TestCase):
    """Each case has a folder of its own, with the programs in bin/, which `environment` names."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name).resolve()
        (self.folder / "bin").mkdir()
        for path in PROGRAMS:
            (self.folder / "bin" / os.path.basename(path)).symlink_to(path)
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("RUBATO_")}
        self.environment["RUBATO_BIN_DIR"] = str(self.folder / "bin")
