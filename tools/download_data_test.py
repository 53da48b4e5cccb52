#!/usr/bin/python3 -B
"""Tests download_data against servers on loopback."""

import hashlib
import http.server
import importlib.machinery
import importlib.util
import io
import contextlib
import os
import re
import socket
import tempfile
import threading
import unittest

loader = importlib.machinery.SourceFileLoader('download_data', 'tools/download_data')
download_data = importlib.util.module_from_spec(
    importlib.util.spec_from_loader('download_data', loader))
loader.exec_module(download_data)

CONTENT = {'a.gz': bytes(range(256)) * 8192, 'b.gz': b'labels'}  # 2 MiB, more than one piece
FILES = [download_data.File(name, len(data), hashlib.sha256(data).hexdigest())
         for name, data in CONTENT.items()]


class Mirror:
    """Serves `content`; remembers what it was asked. cut: sends only so many bytes of each file."""

    def __init__(self, content, cut=None, ranges=True):
        mirror = self
        self.asked = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                name = self.path.rsplit('/', 1)[-1]
                wanted = self.headers.get('Range')
                mirror.asked.append((name, wanted))
                data = content.get(name)
                if data is None:
                    self.send_error(404, 'Not here')
                    return
                begin = int(re.match(r'bytes=(\d+)-', wanted).group(1)) if wanted and ranges else 0
                self.send_response(206 if begin else 200)
                self.send_header('Content-Length', str(len(data) - begin))
                self.end_headers()
                self.wfile.write(data[begin:cut])

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.url = f'http://127.0.0.1:{self.server.server_port}/sets/'
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class DownloadDataTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = os.path.join(temporary.name, 'new', 'folder')
        self.said = []

    def mirror(self, *arguments, **settings):
        mirror = Mirror(*arguments, **settings)
        self.addCleanup(mirror.close)
        return mirror

    def dead(self):
        """A port where nobody listens."""
        with socket.socket() as listener:
            listener.bind(('127.0.0.1', 0))
            return f'http://127.0.0.1:{listener.getsockname()[1]}/'

    def download(self, *urls):
        return download_data.download(download_data.DataSet(list(urls), FILES), self.folder,
                                      timeout=5, say=self.said.append)

    def path(self, name):
        return os.path.join(self.folder, name)

    def check_whole(self):
        self.assertEqual(sorted(os.listdir(self.folder)), sorted(CONTENT))
        for name, data in CONTENT.items():
            with open(self.path(name), 'rb') as file:
                self.assertEqual(file.read(), data)

    def test_gets_all_files(self):
        self.assertEqual(self.download(self.mirror(CONTENT).url), [])
        self.check_whole()

    def test_passes_over_mirrors_that_are_dead_wrong_or_lack_the_files(self):
        good = self.mirror(CONTENT)
        wrong = self.mirror({name: b'x' * len(data) for name, data in CONTENT.items()})
        longer = self.mirror({name: data + b'more' for name, data in CONTENT.items()})
        page = self.mirror({name: b'<html>moved</html>' for name in CONTENT})
        empty = self.mirror({})
        self.assertEqual(self.download(self.dead(), wrong.url, longer.url, page.url, empty.url,
                                       good.url), [])
        self.check_whole()
        text = '\n'.join(self.said)
        self.assertIn('Connection refused', text)
        self.assertRegex(text, r'a\.gz: has other bytes: SHA-256 [0-9a-f]{64}, expected ')
        self.assertIn(f'sends more than the {len(CONTENT["a.gz"])} bytes', text)
        self.assertIn(f'sent 18 of {len(CONTENT["a.gz"])} bytes', text)
        self.assertIn('Not here', text)
        # Those that failed come last for the next file.
        self.assertEqual(len(wrong.asked), 1)
        # First asked for what the page's beginning lacks, then, as that was wrong, for all.
        self.assertEqual(good.asked, [('a.gz', 'bytes=18-'), ('a.gz', None), ('b.gz', None)])

    def test_names_what_nobody_has_and_leaves_nothing_under_its_name(self):
        wrong = self.mirror({'a.gz': b'x' * len(CONTENT['a.gz']), 'b.gz': CONTENT['b.gz']})
        self.assertEqual(self.download(self.dead(), wrong.url), ['a.gz'])
        self.assertEqual(os.listdir(self.folder), ['b.gz'])

    def test_goes_on_where_a_mirror_broke_off(self):
        broken = self.mirror(CONTENT, cut=1 << 20)
        good = self.mirror(CONTENT)
        self.assertEqual(self.download(broken.url), ['a.gz'])
        self.assertEqual(sorted(os.listdir(self.folder)), ['a.gz.part', 'b.gz'])
        self.assertEqual(self.download(good.url), [])
        self.assertEqual(good.asked, [('a.gz', f'bytes={1 << 20}-')])
        self.check_whole()

    def test_begins_anew_where_a_mirror_knows_no_ranges(self):
        self.assertEqual(self.download(self.mirror(CONTENT, cut=1 << 20).url), ['a.gz'])
        self.assertEqual(self.download(self.mirror(CONTENT, ranges=False).url), [])
        self.check_whole()

    def test_begins_anew_if_what_it_has_is_wrong(self):
        os.makedirs(self.folder)
        for name, data in (('a.gz.part', b'x' * 1000), ('b.gz.part', b'far too long')):
            with open(self.path(name), 'wb') as file:
                file.write(data)
        good = self.mirror(CONTENT)
        self.assertEqual(self.download(good.url), [])
        self.assertEqual(good.asked, [('a.gz', 'bytes=1000-'), ('a.gz', None), ('b.gz', None)])
        self.check_whole()

    def test_leaves_files_alone_that_are_there(self):
        good = self.mirror(CONTENT)
        self.download(good.url)
        good.asked.clear()
        self.assertEqual(self.download(good.url), [])
        self.assertEqual(good.asked, [])
        with open(self.path('b.gz'), 'wb') as file:
            file.write(b'mine')
        self.assertEqual(self.download(good.url), ['b.gz'])
        with open(self.path('b.gz'), 'rb') as file:
            self.assertEqual(file.read(), b'mine')

    def test_command(self):
        good = self.mirror(CONTENT)
        sets = {'small': download_data.DataSet([self.dead()], FILES)}
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            self.assertEqual(download_data.main(['small', self.folder], sets), 1)
            self.assertEqual(
                download_data.main(['small', self.folder, '--mirror', good.url], sets), 0)
            with self.assertRaises(SystemExit) as wrong:
                download_data.main(['large', self.folder], sets)
            self.assertEqual(wrong.exception.code, 2)
        self.assertIn('lacks a.gz, b.gz', err.getvalue())
        self.assertIn('all 2 files of small are there', out.getvalue())

    def test_knows_the_files_of_fashion_mnist(self):
        root = os.environ.get('RUBATO_TEST_DATA')
        if not root:
            self.skipTest('RUBATO_TEST_DATA is not set')
        for file in download_data.DATA_SETS['fashion-mnist'].files:
            path = os.path.join(root, 'fashion-mnist', file.name)
            self.assertEqual(os.path.getsize(path), file.size)
            self.assertEqual(download_data.sha256_of(path), file.sha256)


if __name__ == '__main__':
    unittest.main()
