#!/usr/bin/python3 -B
"""The house is tidy: nothing dead, nothing too long, pictures with their commands, licences told.

What it holds is in CONTRIBUTING.md. It looks at the whole clone, so its result is never taken from
a cache.
"""

import collections
import os
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(os.path.realpath("README.md")).parent
# Written by a tool, or by somebody else, or what tests take in as it is.
AS_IT_IS = re.compile(
    r".*(goldens?/|/corpus/|tests/data/|docs/reference/|\.ipynb$|chart_js_licence|LICENSE$)")


NO_TEXT = []


def listed():
    """Names and texts of the files of text that Git knows."""
    out = subprocess.run(["git", "-C", ROOT, "ls-files"], check=True, text=True,
                         stdout=subprocess.PIPE)
    texts = {}
    for name in out.stdout.splitlines():
        path = ROOT / name
        if path.is_file() and not AS_IT_IS.match(name) and not name.endswith((".png", ".svg")):
            try:
                texts[name] = path.read_text()
            except UnicodeDecodeError:
                NO_TEXT.append(name)
    return texts


TEXTS = listed()
BUILDS = {name: text for name, text in TEXTS.items()
          if name.endswith(("BUILD", "BUILD.bazel", ".bzl"))}


def too_long(name, text):
    """Numbers of lines that are longer than their kind of file may have."""
    if name == "tensor/cuda/kernel_table.txt":
        return  # A table, written by a tool: a row is a kernel, with four figures for each of four devices.
    limit = 100 if re.search(r"\.(cc|h|cu|md)$", name) else 120
    fence = False
    for number, line in enumerate(text.splitlines(), 1):
        if name.endswith(".md"):
            fence ^= line.lstrip().startswith("```")
            # Tables and what programs print have no place for a break, nor has a long link.
            if name != "README.md" and (fence or re.match(r" *(\||    )", line) or
                                        re.match(r"!\[|\S+$", line.strip())):
                continue
        if len(line) > limit and 'R"(' not in line:
            yield number


class TidyTest(unittest.TestCase):

    def test_no_line_is_too_long(self):
        found = {name: list(too_long(name, text)) for name, text in TEXTS.items()}
        self.assertEqual({name: lines for name, lines in found.items() if lines}, {}, "too long")

    def test_no_program_is_kept(self):
        self.assertEqual(NO_TEXT, [], "neither text nor picture")

    def test_the_readme_fits(self):
        self.assertLessEqual(len(TEXTS["README.md"].splitlines()), 150)

    def test_every_header_begins_with_its_sentence(self):
        for name, text in TEXTS.items():
            if name.endswith(".h"):
                told = re.sub(r"(?m)^(#.*(\\\n.*)*|namespace .*|using .*|\w+ \w+;.*|\s*)$\n?", "",
                              text)
                self.assertRegex(told, r"^\s*//", name)

    def test_every_source_is_built(self):
        for name in TEXTS:
            if not re.search(r"\.(cc|h|cu|proto)$|_test\.(py|sh)$", name):
                continue
            folder = name
            while folder and f"{folder}/BUILD" not in TEXTS:
                folder = os.path.dirname(folder)
            build = TEXTS[f"{folder}/BUILD"] if folder else ""
            path = os.path.relpath(name, folder or ".")
            stem = os.path.basename(name).rsplit(".", 1)[0]
            scripts = [text for other, text in TEXTS.items() if "." not in os.path.basename(other)
                       and os.path.dirname(other) == os.path.dirname(name) and text[:2] == "#!"]
            # A macro or a loop may add to the name.
            bare = re.sub(r"_(test|fuzz)$", "", stem)
            named = {path, stem, bare, bare.split("_", 1)[-1]}
            whole_folder = f'"*.{name.rsplit(".", 1)[1]}"' in build
            self.assertTrue(whole_folder or any(f'"{one}"' in build for one in named) or
                            any(path in text for text in scripts), name)

    def test_every_script_has_a_user(self):
        for name in TEXTS:
            if name.startswith("tools/scripts/") and not name.endswith("BUILD"):
                users = [user for user, text in TEXTS.items()
                         if user != name and os.path.basename(name) in text]
                self.assertTrue(users, name)

    def test_every_library_has_a_user(self):
        everything = "\n".join(BUILDS.values())
        everything = everything.replace("@cuda//:", "//tools/bazel:")  # its BUILD is in cuda.bzl
        for name, text in BUILDS.items():
            for rule in re.findall(r"(?ms)^cc_library\((.*?)^\)", text):
                target = re.search(r'name = "([\w-]+)"', rule).group(1)
                package = os.path.dirname(name)
                label = f"//{package}:{target}"
                if label in ("//tests/fuzz:replay", "//tools/simulator:mutant"):
                    continue  # macros name them
                used = (everything.count(f"//{package}:{target}") - everything.count(f'"{label}"') +
                        everything.count(f'"{label}"') + text.count(f'":{target}"') +
                        (everything.count(f'"//{package}"') if package.endswith(target) else 0))
                self.assertGreater(used, 0, f"{label} is used by nothing")

    # What a flag sets is read somewhere.
    def test_every_flag_has_an_effect(self):
        code = {name: re.sub(r"//.*", "", text) for name, text in TEXTS.items()
                if re.search(r"(?<!_test)\.(cc|h)$", name)}
        words = {name: collections.Counter(re.findall(r"\w+", re.sub(r'"[^"\n]*"', "", text)))
                 for name, text in code.items()}
        everywhere = sum(words.values(), collections.Counter())
        flags = [(match, name) for name, text in code.items() for match in
                 re.finditer(r'flags(?:\.|->)Add\(\s*"([\w-]+)",\s*&?([\w.>-]+)', text)]
        self.assertGreater(len(flags), 60)
        for match, name in flags:
            variable = re.split(r"\.|->", match.group(2))[-1]
            known = words[name] if variable == match.group(2) else everywhere
            # Where it is declared, where the flag sets it, and where it is read.
            self.assertGreater(known[variable], 2, f"--{match.group(1)} of {name}")

    def test_every_configuration_of_the_build_has_a_use(self):
        for config in set(re.findall(r"(?m)^\w+:(\w+)", TEXTS[".bazelrc"])):
            users = [name for name, text in TEXTS.items() if name != ".bazelrc" and
                     re.search(rf"--config[= ]{config}\b|`{config}`|\b{config},|, {config}\b", text)]
            self.assertTrue(users, config)

    def test_every_picture_is_shown_and_can_be_made_again(self):
        table = TEXTS["docs/pictures.md"]
        for path in [*ROOT.glob("docs/*.png"), *ROOT.glob("docs/*.svg")]:
            shown = [name for name, text in TEXTS.items() if name.endswith(".md") and
                     name != "docs/pictures.md" and path.name in text]
            self.assertTrue(shown, f"no page shows {path.name}")
            self.assertRegex(table, rf"(?m)^\|.*\[`{path.name}`\]", "docs/pictures.md")

    def test_licences_of_what_is_linked_in_are_told(self):
        page = TEXTS["docs/licences.md"]
        linked = re.findall(r'library\(\s*name = "(\w+)"', TEXTS["tools/bazel/BUILD"])
        self.assertIn("absl", linked)
        for library in set(linked) - {"gtest", "gtest_main"}:
            self.assertRegex(page, rf"(?m)^\|.*`{library}`.* \|", library)

    def test_no_wait_of_grpc_ends_by_the_wall_clock(self):
        for name, text in TEXTS.items():
            if re.search(r"^(common|server|worker|tools)/.*(?<!_test)\.(cc|h)$", name):
                self.assertNotRegex(text, "ToChronoTime|GPR_CLOCK_REALTIME|system_clock",
                                    f"{name}: DeadlineIn of common/wire/channel.h")

    def test_nothing_is_left_to_do(self):
        for name, text in TEXTS.items():
            if not name.startswith("tests/tidy/"):
                self.assertNotRegex(text, r"\b(TODO|FIXME)\b", name)


if __name__ == "__main__":
    unittest.main()
