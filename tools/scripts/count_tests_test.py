#!/usr/bin/python3 -B
"""Tests count_tests with XML and events as GoogleTest 1.12 and Bazel 4.2 write them."""

import sys
import unittest

sys.path.insert(0, 'tools')
import count_tests  # pylint: disable=wrong-import-position

# One case each that passes, fails, skips with a reason, skips without one, is disabled.
GOOGLETEST = '''<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="5" failures="1" disabled="1" errors="0" time="0" name="AllTests">
  <testsuite name="Good" tests="4" failures="0" disabled="1" skipped="2" errors="0" time="0">
    <testcase name="Passes" status="run" result="completed" time="0" classname="Good" />
    <testcase name="Skips" status="run" result="skipped" time="0" classname="Good">
      <skipped message="x/x.cc:5&#x0A;no data here"><![CDATA[x/x.cc:5
no data here]]></skipped>
    </testcase>
    <testcase name="SkipsSilently" status="run" result="skipped" time="0" classname="Good">
      <skipped message="x/x.cc:7&#x0A;"><![CDATA[x/x.cc:7
]]></skipped>
    </testcase>
    <testcase name="DISABLED_Sleeps" status="notrun" result="suppressed" classname="Good" />
  </testsuite>
  <testsuite name="All/P" tests="1" failures="1" disabled="0" skipped="0" errors="0" time="0">
    <testcase name="Works/2" status="run" result="completed" time="0" classname="All/P">
      <failure message="x/x.cc:10&#x0A;Expected: 3 &lt; 3" type=""><![CDATA[x/x.cc:10
Expected: 3 < 3]]></failure>
    </testcase>
  </testsuite>
</testsuites>
'''

PASSES = '''<testsuites tests="2" failures="0" name="AllTests"><testsuite name="S" tests="2">
<testcase name="A" status="run" result="completed" time="0" classname="S" />
<testcase name="B" status="run" result="completed" time="0" classname="S" />
</testsuite></testsuites>'''

NO_CASES = '<testsuites tests="0" failures="0" errors="0" time="0" name="AllTests"></testsuites>'

# Bazel's own, of a program that wrote none.
BAZEL_FAILURE = '''<testsuites><testsuite name="x/crash" tests="1" failures="0" errors="1">
<testcase name="x/crash" status="run" time="0"><error message="exited with error code 134"></error>
</testcase><system-out>[ RUN      ] Bad.Crashes</system-out></testsuite></testsuites>'''
BAZEL_SUCCESS = '''<testsuites><testsuite name="x/plain" tests="1" failures="0" errors="0">
<testcase name="x/plain" status="run" time="0"></testcase></testsuite></testsuites>'''


def result(label, status, uri='', attempt=1):
    outputs = [{'name': 'test.log', 'uri': 'log'}] + ([{'name': 'test.xml', 'uri': uri}]
                                                      if uri else [])
    return {
        'id': {'testResult': {'label': label, 'run': 1, 'shard': 1, 'attempt': attempt}},
        'testResult': {'testActionOutput': outputs, 'status': status},
    }


def configured(label, kind):
    return {'id': {'targetConfigured': {'label': label}}, 'configured': {'targetKind': kind}}


def not_built(label):
    return {
        'id': {'targetCompleted': {'label': label}},
        'completed': {'failureDetail': {'message': 'gcc failed'}},
    }


def finished(name, code=0):
    # As in proto3's JSON, where a zero is left out.
    exit_code = {'name': name, 'code': code} if code else {'name': name}
    return {'id': {'buildFinished': {}}, 'finished': {'exitCode': exit_code}}


class CountTestsTest(unittest.TestCase):

    def lines(self, *events, **files):
        text, code = count_tests.report(
            count_tests.cases_of_events(events, read=lambda uri: files[uri]))
        self.assertEqual(code, 0 if ' 0 failed' in text else 1)
        return text.splitlines()

    def test_counts_cases_and_gives_the_reason_of_each_skip(self):
        self.assertEqual(
            self.lines(result('//x:bad', 'FAILED', 'bad'), result('//x:ok', 'PASSED', 'ok'),
                       finished('TESTS_FAILED', 3), bad=GOOGLETEST, ok=PASSES), [
                           'skipped: Good.Skips (//x:bad): no data here',
                           'skipped: Good.SkipsSilently (//x:bad): x/x.cc:7',
                           'skipped: Good.DISABLED_Sleeps (//x:bad): disabled',
                           'failed: All/P.Works/2 (//x:bad): x/x.cc:10 Expected: 3 < 3',
                           '3 passed, 1 failed, 3 skipped',
                       ])

    def test_a_crash_is_one_failed_case(self):
        self.assertEqual(
            self.lines(result('//x:crash', 'FAILED', 'xml'), xml=BAZEL_FAILURE),
            ['failed: //x:crash: exited with error code 134', '0 passed, 1 failed, 0 skipped'])

    def test_a_timeout_is_one_failed_case(self):
        self.assertEqual(self.lines(result('//x:hang', 'TIMEOUT', 'xml'), xml=BAZEL_FAILURE),
                         ['failed: //x:hang: timed out', '0 passed, 1 failed, 0 skipped'])

    def test_failing_after_the_cases_counts_besides_them(self):
        self.assertEqual(self.lines(result('//x:leak', 'FAILED', 'xml'), xml=PASSES), [
            'failed: //x:leak: failed, though none of its cases did',
            '2 passed, 1 failed, 0 skipped'
        ])

    def test_a_program_without_cases_counts_one(self):
        self.assertEqual(
            self.lines(result('//x:a', 'PASSED', 'none'), result('//x:b', 'PASSED', 'plain'),
                       result('//x:c', 'PASSED'), none=NO_CASES, plain=BAZEL_SUCCESS),
            ['3 passed, 0 failed, 0 skipped'])

    def test_broken_xml_of_a_failed_program_is_one_failed_case(self):
        self.assertEqual(self.lines(result('//x:a', 'FAILED', 'xml'), xml=PASSES[:50]), [
            'failed: //x:a: failed, though none of its cases did', '0 passed, 1 failed, 0 skipped'
        ])

    def test_only_the_last_attempt_counts(self):
        self.assertEqual(
            self.lines(result('//x:a', 'FAILED', 'first', 1), result('//x:a', 'PASSED', 'last', 2),
                       finished('SUCCESS'), first=BAZEL_FAILURE, last=PASSES),
            ['2 passed, 0 failed, 0 skipped'])

    def test_a_test_that_does_not_build_is_one_failed_case(self):
        self.assertEqual(
            self.lines(configured('//x:lib', 'cc_library rule'),
                       configured('//x:test', 'cc_test rule'), not_built('//x:lib'),
                       not_built('//x:test'), result('//x:ok', 'PASSED', 'ok'),
                       finished('BUILD_FAILURE', 1), ok=PASSES),
            ['failed: //x:test: did not build', '2 passed, 1 failed, 0 skipped'])

    def test_whatever_else_stops_bazel_is_one_failed_case(self):
        self.assertEqual(
            self.lines(configured('//x:tool', 'cc_binary rule'), not_built('//x:tool'),
                       result('//x:ok', 'PASSED', 'ok'), finished('BUILD_FAILURE', 1), ok=PASSES),
            ['failed: bazel test: //x:tool did not build', '2 passed, 1 failed, 0 skipped'])
        self.assertEqual(self.lines(finished('PARSING_FAILURE', 1)),
                         ['failed: bazel test: PARSING_FAILURE', '0 passed, 1 failed, 0 skipped'])


if __name__ == '__main__':
    unittest.main()
