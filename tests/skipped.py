"""A Python test that cannot run counts as skipped, with the reason."""

import os
import sys


def skip(suite, case, reason):
    """Ends the process; the test's XML file, where one is wanted, says why."""
    print("SKIPPED:", reason)
    path = os.environ.get("XML_OUTPUT_FILE")
    if path:
        with open(path, "w") as file:
            file.write(
                f'<testsuites><testsuite name="{suite}" tests="1" skipped="1">'
                f'<testcase name="{case}" classname="{suite}">'
                f'<skipped message="{reason}"/></testcase></testsuite></testsuites>')
    sys.exit(0)
