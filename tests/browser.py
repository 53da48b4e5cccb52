"""Asks a page in headless Chromium what it has drawn."""

import html
import json
import os
import re
import shutil
import subprocess

from skipped import skip

PROBE = """
<script>
const errors = [];
addEventListener('error', event => errors.push(event.message));
</script>
"""
TELL = "<script>answer.errors = errors; parent.postMessage(JSON.stringify(answer), '*');</script>"
# The page stands in a frame, since a window may not be as narrow as a telephone.
FRAME = """<!DOCTYPE html><body>
<iframe src="probed.html%s" style="border: 0; height: 1200px; width: %dpx"></iframe>
<script>addEventListener('message', event => { document.body.dataset.answer = event.data; });</script>
</body>"""


def chromium(suite, test):
    """The browser; without one the test is skipped."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        skip(suite, test, "chromium is not installed")
    return found


def ask(browser, page, script, folder, width=1400, fragment=""):
    """What `script`, run at the end of the page, puts into `answer`, and its `errors`. The page's address ends with
    `fragment`."""
    begin, end = page.index("<head>") + 6, page.rindex("</body>")
    with open(f"{folder}/probed.html", "w", encoding="utf-8") as file:
        file.write(page[:begin] + PROBE + page[begin:end] + f"<script>{script}</script>" + TELL + page[end:])
    with open(f"{folder}/frame.html", "w", encoding="utf-8") as file:
        file.write(FRAME % (fragment, width))
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         f"--user-data-dir={folder}/profile", "--window-size=1500,1300", "--virtual-time-budget=5000", "--dump-dom",
         f"file://{folder}/frame.html"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, env={**os.environ, "HOME": folder})
    found = re.search(r'data-answer="([^"]*)"', done.stdout)
    assert found, (done.returncode, done.stderr[-2000:], done.stdout[-500:])
    return json.loads(html.unescape(found.group(1)))
