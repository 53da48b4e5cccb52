#!/usr/bin/python3 -B
"""Packages of a small tree, judged by tar, dpkg, pip, man and the linker themselves."""

import base64
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

sys.path[:0] = ["tools/packaging", "tests"]

import formats
import licences
import manual
import requirements
from skipped import run_cases
from tree import Unknown, document, program

EPOCH = 1700000000  # 2023-11-14T22:13:20Z
SCRIPT = "#!/bin/sh\necho rubato 1.2.3\n"


def said(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          **options)
    if done.returncode:
        raise AssertionError(f"{command[0]} ended with {done.returncode}: {done.stdout}")
    return done.stdout


class PackagingTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(shutil.rmtree, self.folder)
        script = self.write("rubato", SCRIPT)
        self.tree = {"bin/rubato": program(script),
                     "share/rubato/configs/quickstart.yaml": document("version: 1\n"),
                     "share/doc/rubato/LICENSE": document("text\n")}

    def write(self, name, data):
        path = pathlib.Path(self.folder, name)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    def packages(self, tree):
        return {"a.tar.gz": formats.tarball(tree, "top", EPOCH),
                "a.deb": formats.deb(tree, "1.2.3", ["libc6 (>= 2.36)"], EPOCH),
                f"rubato_ps-1.2.3-{formats.WHEEL_TAG}.whl": formats.wheel(tree, "1.2.3", EPOCH)}


class FormatsTest(PackagingTest):

    def test_bytes_depend_on_the_tree_alone(self):
        first = self.packages(self.tree)
        before = os.umask(0o077)
        self.addCleanup(os.umask, before)
        self.addCleanup(time.tzset)
        self.addCleanup(os.environ.pop, "TZ")
        os.environ["TZ"] = "Asia/Tokyo"
        time.tzset()
        self.assertEqual(self.packages(dict(reversed(self.tree.items()))), first)
        changed = dict(self.tree, **{"bin/rubato": document(SCRIPT)})  # the mode alone
        for name, data in self.packages(changed).items():
            self.assertNotEqual(data, first[name], name)

    def test_tar_reads_the_tarball(self):
        path = self.write("a.tar.gz", formats.tarball(self.tree, "top", EPOCH))
        listed = said(["tar", "--utc", "--full-time", "-tvzf", path]).splitlines()
        self.assertEqual([line.split()[0] + " " + line.split()[-1] for line in listed], [
            "drwxr-xr-x top/", "drwxr-xr-x top/bin/", "drwxr-xr-x top/share/",
            "drwxr-xr-x top/share/doc/", "drwxr-xr-x top/share/doc/rubato/",
            "drwxr-xr-x top/share/rubato/", "drwxr-xr-x top/share/rubato/configs/",
            "-rwxr-xr-x top/bin/rubato", "-rw-r--r-- top/share/doc/rubato/LICENSE",
            "-rw-r--r-- top/share/rubato/configs/quickstart.yaml"])
        for line in listed:
            self.assertIn(" root/root ", line)
            self.assertIn(" 2023-11-14 22:13:20 ", line)

    def test_dpkg_installs_verifies_and_removes_the_package(self):
        if os.geteuid() or not shutil.which("dpkg"):
            self.skipTest("dpkg installs as root alone, where it is there")
        path = self.write("a.deb", formats.deb(self.tree, "1.2.3", ["libc6 (>= 2.36)"], EPOCH))
        root = pathlib.Path(self.folder, "root")
        for folder in ("var/lib/dpkg/info", "var/lib/dpkg/updates"):
            (root / folder).mkdir(parents=True)
        (root / "var/lib/dpkg/status").touch()
        dpkg = ["dpkg", f"--root={root}", "--log=/dev/null", "--force-depends",
                "--force-bad-path"]
        said([*dpkg, "--install", path])
        self.assertEqual(said([root / "usr/bin/rubato"]), "rubato 1.2.3\n")
        self.assertEqual(said([*dpkg, "--verify", "rubato"]), "")
        self.assertEqual(said(["dpkg-query", f"--root={root}", "-W", "-f", "${Version} ${Depends}",
                               "rubato"]), "1.2.3 libc6 (>= 2.36)")
        said([*dpkg, "--purge", "rubato"])
        self.assertFalse((root / "usr").exists())

    def test_the_record_has_the_hash_of_every_file(self):
        with zipfile.ZipFile(io.BytesIO(formats.wheel(self.tree, "1.2.3", EPOCH))) as archive:
            names = archive.namelist()
            rows = [line.split(",") for line in
                    archive.read("rubato_ps-1.2.3.dist-info/RECORD").decode().splitlines()]
            self.assertEqual(sorted(row[0] for row in rows), sorted(names))
            for name, digest, size in rows:
                if name.endswith("/RECORD"):
                    continue
                path = self.write("file", archive.read(name))
                sha = said(["sha256sum", path]).split()[0]
                padded = digest[len("sha256="):] + "="
                self.assertEqual(base64.urlsafe_b64decode(padded).hex(), sha, name)
                self.assertEqual(int(size), path.stat().st_size)

    def test_pip_installs_checks_and_removes_the_wheel(self):
        environment = pathlib.Path(self.folder, "environment")
        if subprocess.run(["/usr/bin/python3", "-m", "venv", environment],
                          stdout=subprocess.DEVNULL).returncode:
            self.skipTest("Python here makes no environment (python3-venv)")
        name = f"rubato_ps-1.2.3-{formats.WHEEL_TAG}.whl"
        self.tree[formats.MODULES + "rubato/__init__.py"] = document("answer = 42\n")
        path = self.write(name, formats.wheel(self.tree, "1.2.3", EPOCH))
        pip = [environment / "bin/pip", "--disable-pip-version-check"]
        said([*pip, "install", "--no-index", "--no-deps", path])
        self.assertEqual(said([environment / "bin/rubato"]), "rubato 1.2.3\n")
        self.assertTrue((environment / "share/rubato/configs/quickstart.yaml").exists())
        self.assertEqual(said([environment / "bin/python", "-c", "import rubato; print(rubato.answer)"]), "42\n")
        self.assertIn("rubato-ps==1.2.3", said([*pip, "list", "--format=freeze"]))
        shown = said([*pip, "show", "--files", "rubato-ps"])
        self.assertIn("../../../share/rubato/configs/quickstart.yaml", shown)
        said([*pip, "uninstall", "--yes", "rubato_ps"])
        self.assertFalse((environment / "bin/rubato").exists())


class LicencesTest(PackagingTest):

    def link(self, *arguments):
        source = self.write("main.c", "#include <zlib.h>\nint answer(void);\n"
                            "int main(void) { return answer() + (int)zlibCompileFlags(); }\n")
        said(["gcc", "-MMD", "-MF", f"{self.folder}/main.d", source, "-o", f"{self.folder}/main",
              f"-Wl,-Map={self.folder}/map", *arguments])
        named = licences.in_map(pathlib.Path(self.folder, "map").read_text())
        named |= licences.in_dependencies(pathlib.Path(self.folder, "main.d").read_text())
        return {os.path.realpath(path) for path in named
                if not path.startswith((self.folder, tempfile.gettempdir()))}

    def test_finds_the_licences_of_archives_headers_and_embedded_files(self):
        answer = self.write("answer.c", "int answer(void) { return 42; }\n")
        paths = self.link(answer, "-Wl,-Bstatic", "-lz", "-lssl", "-Wl,-Bdynamic")
        chart = "/usr/share/javascript/chart.js/chart.min.js"
        paths |= licences.in_command(f"/usr/bin/python3 embed.py k={chart}")
        found = licences.owners(paths)
        self.assertLessEqual({"zlib1g-dev", "libc6-dev", "libgcc-12-dev", "libjs-chart.js"},
                             set(found))
        # What is named but not linked in asks for no licence.
        self.assertNotIn("libssl-dev", found)
        texts = licences.texts(found)
        self.assertIn(b"Jean-loup Gailly", texts["zlib1g-dev"])
        self.assertIn(b"GNU LESSER GENERAL PUBLIC LICENSE", texts["common/LGPL-2.1"])

    def test_refuses_a_linked_archive_of_nobody(self):
        answer = self.write("answer.c", "int answer(void) { return 42; }\n")
        said(["gcc", "-c", answer, "-o", f"{self.folder}/answer.o"])
        said(["ar", "rc", f"{self.folder}/libanswer.a", f"{self.folder}/answer.o"])
        self.link(f"{self.folder}/libanswer.a", "-lz")
        named = licences.in_map(pathlib.Path(self.folder, "map").read_text())
        self.assertIn(f"{self.folder}/libanswer.a", named)
        with self.assertRaisesRegex(Unknown, "found no licence of .*/libanswer.a"):
            licences.owners([f"{self.folder}/libanswer.a"])

    def test_reads_the_licence_of_a_toolkit(self):
        toolkit = pathlib.Path(self.folder, "cuda")
        info = toolkit / "dist-info/nvidia_runtime-13.0.dist-info"
        (info / "licenses").mkdir(parents=True)
        (info / "licenses/License.txt").write_text("terms\n")
        (info / "RECORD").write_text("nvidia/cu13/lib/libruntime.a,sha256=x,1\n")
        (toolkit / "lib").mkdir()
        self.assertEqual(licences.owners([f"{toolkit}/lib/libruntime.a"]),
                         {"nvidia_runtime": info / "licenses/License.txt"})
        with self.assertRaisesRegex(Unknown, "libother.a"):
            licences.owners([f"{toolkit}/lib/libother.a"])
        (toolkit / "EULA.txt").write_text("terms\n")
        self.assertEqual(licences.owners([f"{toolkit}/lib/libother.a"]),
                         {"cuda-toolkit": toolkit / "EULA.txt"})


class RequirementsTest(PackagingTest):

    def build(self, text, *arguments):
        source = self.write("main.cc", text)
        said(["g++", source, "-o", f"{self.folder}/main", *arguments])
        return f"{self.folder}/main"

    def test_versions_are_those_of_the_symbols(self):
        built = self.build('#include <iostream>\nint main() { std::cout << "hello"; }\n')
        depends = requirements.of_debian([built])
        self.assertRegex(", ".join(depends), r"^libc6 \(>= 2\.\d+\), libstdc\+\+6 \(>= [\d.]+\)$")

    def test_refuses_other_libraries(self):
        text = "#include <zlib.h>\nint main() { return (int)zlibCompileFlags(); }\n"
        built = self.build(text, "-lz")
        with self.assertRaisesRegex(Unknown, r"needs libz\.so\.1; expected glibc and libstdc\+\+"):
            requirements.of_debian([built])


class ManualTest(PackagingTest):

    def test_man_shows_what_the_program_prints(self):
        helps = {("--help",): "usage: rubato VERB ...\n\nVerbs:\n  train  train a job\n\n.x\n",
                 ("train", "--help"): "usage: rubato train [--set KEY=VALUE]\n\n  'a' \\ -b\n"}
        text = manual.page("rubato", "1.2.3", EPOCH, lambda arguments: helps[tuple(arguments)])
        if not shutil.which("man"):
            self.skipTest("man is not here (man-db)")
        shown = said(["man", "--warnings", "--local-file", self.write("rubato.1", text)],
                     env={"MANWIDTH": "100", "LC_ALL": "C", "PATH": "/usr/bin:/bin"})
        lines = [line.strip() for line in shown.splitlines()]
        for line in "".join(helps.values()).splitlines():
            self.assertIn(line.strip(), lines)
        self.assertIn("RUBATO(1)", lines[0])
        self.assertIn("rubato 1.2.3", lines[-1])


if __name__ == "__main__":
    run_cases()
