"""A Python test that cannot run counts as skipped, with the reason."""

import os
import sys
import unittest
from xml.sax.saxutils import quoteattr


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


class _Cases(unittest.TextTestResult):
    """Remembers what was run."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.run = []

    def startTest(self, test):
        super().startTest(test)
        self.run.append(test)


def run_cases():
    """unittest.main of a test in which single cases may be skipped: each counts for itself."""
    program = unittest.main(testRunner=unittest.TextTestRunner(resultclass=_Cases), exit=False)
    result = program.result
    marks = {test: ("skipped", reason) for test, reason in result.skipped}
    marks.update({test: ("failure", text) for test, text in result.failures + result.errors})
    path = os.environ.get("XML_OUTPUT_FILE")
    if path:
        lines = []
        for test in result.run:
            suite, name = test.id().split(".")[-2:]
            mark = "<%s message=%s/>" % (marks[test][0], quoteattr(marks[test][1])) if test in marks else ""
            lines.append(f'<testcase name="{name}" classname="{suite}">{mark}</testcase>')
        with open(path, "w") as file:
            file.write(f'<testsuites><testsuite name="{sys.argv[0]}">{"".join(lines)}'
                       "</testsuite></testsuites>")
    sys.exit(0 if result.wasSuccessful() else 1)
