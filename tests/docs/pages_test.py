#!/usr/bin/python3 -B
"""What README, CONTRIBUTING and docs/ name exists: links, anchors, targets, files, tests of promises."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, "tests/docs")
import pages

ROOT = pathlib.Path(os.path.realpath("README.md")).parent
LIST = pathlib.Path("tests/docs/not_run.txt").read_text()


def files():
    """All files of the clone that Git knows."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], check=True, text=True,
                            stdout=subprocess.PIPE)
    return {line for line in listed.stdout.splitlines() if (ROOT / line).exists()}


FILES = files()
PAGES = sorted(name for name in FILES if name.endswith(".md"))
TEXTS = {page: (ROOT / page).read_text() for page in PAGES}
USERS = [page for page in PAGES if page in ("README.md", "CONTRIBUTING.md") or
         re.fullmatch(r"docs/\w+\.md", page)]
COMMANDS = [command for page in USERS for command in pages.commands(page, TEXTS[page])]


def target_exists(label):
    """Whether a BUILD file has the target, or makes it from a list or a pattern."""
    package, _, name = label.removeprefix("//").partition(":")
    name = name or package.rsplit("/", 1)[-1]
    build = ROOT / package / "BUILD"
    if name in ("...", "all") or package.endswith("..."):
        return True
    if not build.exists():
        return False
    text = build.read_text()
    if f'"{name}"' in text or re.search(rf'"{re.escape(name)}\.\w+"', text):
        return True
    return any(name.endswith(end) and name.removesuffix(end) in text for end in
               ("_test", "_fuzzer", "_fuzz_test")) or name.startswith("mutant_")


class PagesTest(unittest.TestCase):

    def test_every_link_resolves(self):
        count = 0
        for page, text in TEXTS.items():
            for link in pages.links(text):
                if re.match(r"\w+:", link):
                    continue
                path, _, anchor = link.partition("#")
                target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
                with self.subTest(page=page, link=link):
                    count += 1
                    self.assertTrue((ROOT / target).exists())
                    if anchor and target in TEXTS:
                        self.assertIn(anchor, pages.anchors(TEXTS[target]))
        self.assertGreater(count, 200)

    def test_every_page_is_in_the_index(self):
        index = {os.path.normpath(f"docs/{link.split('#')[0]}")
                 for link in pages.links(TEXTS["docs/README.md"])}
        for page in PAGES:
            if page.startswith("docs/") and page != "docs/README.md":
                self.assertIn(page, index)

    def test_every_pattern_of_the_list_matches_a_command(self):
        for pattern in re.findall(r"^    (.*)$", LIST, re.MULTILINE):
            self.assertTrue(any(re.match(pattern, command.text) for command in COMMANDS), pattern)

    def test_targets_and_files_of_commands_exist(self):
        configs = set(re.findall(r"^\w+:(\w+)", (ROOT / ".bazelrc").read_text(), re.MULTILINE))
        for command in COMMANDS:
            with self.subTest(page=command.page, line=command.line, command=command.text):
                for label in re.findall(r"//[\w/.:-]+", command.text):
                    if "://" not in command.text:
                        self.assertTrue(target_exists(label), label)
                for config in re.findall(r"--config=(\w+)", command.text):
                    self.assertIn(config, configs)
                for path in re.findall(r"(?<![\w/.-])((?:tools|tests|configs|python)/[\w./]+)",
                                       command.text):
                    self.assertTrue((ROOT / path).exists(), path)
                words = re.match(r"(tools/\S+|tests/\S+_check)(.*)", command.text)
                if words and (ROOT / words.group(1)).is_file():
                    script = (ROOT / words.group(1)).read_text()
                    for flag in re.findall(r" (--[\w-]+)", words.group(2)):
                        self.assertIn(flag, script)

    def test_the_version_is_that_of_the_code(self):
        header = (ROOT / "common/base/version.h").read_text()
        version = re.search(r'kVersion\[\] = "(.*)"', header).group(1)
        self.assertIn(f"**Status: {version}", TEXTS["README.md"])
        self.assertIn(f"\n## {version}", TEXTS["CHANGELOG.md"])

    # `common/base/isa.h`, //tests:bits_test and the like.
    def test_code_that_is_named_exists(self):
        roots = {name.split("/")[0] for name in FILES if "/" in name}
        for page, text in TEXTS.items():
            text = re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL)
            for path in re.findall(r"`((?:%s)/[\w./-]+)`" % "|".join(roots - {"docs"}), text):
                with self.subTest(page=page, path=path):
                    self.assertTrue((ROOT / path.rstrip("/")).exists() or
                                    target_exists("//" + "/".join(path.split("/")[:-1]) + ":" +
                                                  path.split("/")[-1]))
            for label in re.findall(r"`(//[\w/.:-]+)`", text):
                with self.subTest(page=page, label=label):
                    self.assertTrue(target_exists(label))

    def test_promises_name_tests_that_exist(self):
        rows = [line for line in TEXTS["docs/determinism.md"].splitlines()
                if line.startswith("| ") and "promise |" not in line]
        self.assertGreater(len(rows), 10)
        for row in rows:
            held = row.split(" | ")[-1]
            labels = re.findall(r"`(//[\w/]+:\w+)`((?: \w+\.\w+)?)", held)
            self.assertTrue(labels, row)
            for label, case in labels:
                self.assertTrue(target_exists(label), label)
                if case:
                    suite, name = case.strip().split(".")
                    source = ROOT / (label.removeprefix("//").replace(":", "/") + ".cc")
                    self.assertRegex(source.read_text(), rf"TEST\w*\({suite}, {name}\)")


if __name__ == "__main__":
    unittest.main()
