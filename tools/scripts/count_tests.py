"""Counts the test cases of one `bazel test`, from the file of its --build_event_json_file.

    count_tests.py EVENTS

Prints each case that was skipped or failed and then `N passed, N failed, N skipped`. Exits with 1
if anything failed. The cases are those of each test's test.xml as GoogleTest 1.12 writes it; Bazel
writes one with a single case for every program that wrote none. A program that crashed, timed out
or did not build counts as one failed case, besides the cases that it reported.
"""

import collections
import json
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree

Case = collections.namedtuple('Case', 'outcome name reason')
PASSED, FAILED, SKIPPED = 'passed', 'failed', 'skipped'

# What Bazel's TestStatus says of a program that none of its cases explains.
STATUS_TEXT = {
    'FAILED': 'failed, though none of its cases did',
    'TIMEOUT': 'timed out',
    'NO_STATUS': 'was not run',
    'INCOMPLETE': 'was interrupted',
    'REMOTE_FAILURE': 'could not be run',
    'FAILED_TO_BUILD': 'did not build',
    'TOOL_HALTED_BEFORE_TESTING': 'was not run: Bazel stopped before',
}


def read_cases(xml, label):
    """The cases of one test.xml. Raises ElementTree.ParseError."""
    cases = []
    for case in ElementTree.fromstring(xml).iter('testcase'):
        suite = case.get('classname')
        # Bazel's own single case has no class and a file for its name.
        name = f'{suite}.{case.get("name")} ({label})' if suite else label
        skipped = case.find('skipped')
        failure = case.find('failure')
        if failure is None:
            failure = case.find('error')
        if failure is not None:
            cases.append(Case(FAILED, name, failure.get('message', '')))
        elif skipped is not None:
            # GoogleTest puts a line with the place in the source before the reason.
            lines = [line for line in skipped.get('message', '').splitlines() if line.strip()]
            cases.append(Case(SKIPPED, name, ' '.join(lines[1:] or lines) or 'no reason given'))
        elif case.get('status') == 'notrun':
            cases.append(Case(SKIPPED, name, 'disabled'))
        else:
            cases.append(Case(PASSED, name, ''))
    return cases


def cases_of_program(label, status, xml):
    """The cases of one test program; never none.

    Args:
      label: of the target.
      status: Bazel's TestStatus.
      xml: text of its test.xml, or None.
    """
    try:
        cases = read_cases(xml, label) if xml else []
    except ElementTree.ParseError:
        cases = []
    if status in ('PASSED', 'FLAKY'):
        return cases or [Case(PASSED, label, '')]
    if status == 'FAILED' and any(case.outcome == FAILED for case in cases):
        return cases
    reported = [case for case in cases if case.name != label]
    return reported + [Case(FAILED, label, STATUS_TEXT.get(status, status))]


def file_text(uri):
    with open(urllib.parse.unquote(urllib.parse.urlparse(uri).path), encoding='utf-8',
              errors='replace') as file:
        return file.read()


def cases_of_events(events, read=file_text):
    """All cases of one invocation.

    Args:
      events: the events, in order, as dictionaries.
      read: the text of the file at a URI.
    """
    kinds = {}  # label: kind of rule
    results = {}  # (label, run, shard): (status, xml) of the last attempt
    not_built = []
    exit_code = {}
    for event in events:
        identity = event['id']
        if 'configured' in event:
            kinds[identity['targetConfigured']['label']] = event['configured']['targetKind']
        elif 'testResult' in event:
            key = identity['testResult']
            outputs = event['testResult'].get('testActionOutput', [])
            uri = next((o['uri'] for o in outputs if o['name'] == 'test.xml'), None)
            results[key['label'], key.get('run'), key.get('shard')] = (
                event['testResult'].get('status', 'NO_STATUS'), uri)
        elif 'targetCompleted' in identity:
            if not event.get('completed', {}).get('success'):
                not_built.append(identity['targetCompleted']['label'])
        elif 'finished' in event:
            exit_code = event['finished'].get('exitCode', {})
    cases = []
    for (label, _, _), (status, uri) in sorted(results.items(), key=lambda item: item[0][0]):
        try:
            xml = read(uri) if uri else None
        except OSError:
            xml = None
        cases += cases_of_program(label, status, xml)
    tested = {key[0] for key in results}
    for label in sorted(set(not_built) - tested):
        # A library that does not build is seen in the tests that need it, and counts if none does.
        if kinds.get(label, '').endswith('_test rule'):
            cases.append(Case(FAILED, label, STATUS_TEXT['FAILED_TO_BUILD']))
    # Whatever else stopped Bazel, such as an error in a BUILD file or a program that does not link.
    if exit_code.get('code', 0) != 0 and not any(case.outcome == FAILED for case in cases):
        others = [f'{label} did not build' for label in sorted(set(not_built) - tested)]
        reason = ', '.join(others) or exit_code.get('name', 'unknown error')
        cases.append(Case(FAILED, 'bazel test', reason))
    return cases


def report(cases):
    """What is printed, and the exit code."""
    lines = []
    for outcome in (SKIPPED, FAILED):
        for case in cases:
            if case.outcome == outcome:
                # GoogleTest's failures begin with the place; what was wrong follows.
                reason = ' '.join(case.reason.split('\n')[:2])
                lines.append(f'{outcome}: {case.name}' + (f': {reason}' if reason else ''))
    count = collections.Counter(case.outcome for case in cases)
    lines.append(f'{count[PASSED]} passed, {count[FAILED]} failed, {count[SKIPPED]} skipped')
    return '\n'.join(lines), 1 if count[FAILED] else 0


def main(arguments):
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    with open(arguments[0], encoding='utf-8') as file:
        events = [json.loads(line) for line in file if line.strip()]
    text, code = report(cases_of_events(events))
    print(text)
    return code


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
