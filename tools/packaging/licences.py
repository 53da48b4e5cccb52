"""The licences of what is linked into the programs, from what their build really read.

That is what the linker's map names, the headers that the compiler names for each object, and files
that generating commands take in. Each belongs to a package of Debian, or to NVIDIA's toolkit, whose
licence is then part of ours. A file without a known owner is an error.
"""

import json
import pathlib
import re
import subprocess
import tempfile

from tree import Unknown

COMMON = "/usr/share/common-licenses/"
DOC = pathlib.Path("/usr/share/doc")



def output_of(command, folder):
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


def actions(root, flags, targets):
    """What Bazel runs to build the targets, as lists of arguments, by kind of action."""
    found = {}
    query = "deps(set(%s))" % " ".join(targets)
    listed = json.loads(output_of(
        ["bazel", "aquery", "--ui_event_filters=-info", "--noshow_progress", "--output=jsonproto",
         *flags, query], root))
    for action in listed["actions"]:
        found.setdefault(action["mnemonic"], []).append(action.get("arguments", []))
    return found


def in_map(text):
    """Paths that a linker's map names: archives of which a member was linked, and objects."""
    members = re.findall(r"^(\S+\.a)\([^()\s]+\)", text, re.MULTILINE)
    return set(members + re.findall(r" 0x[0-9a-f]+ (\S+\.o)$", text, re.MULTILINE))


def in_dependencies(text):
    """Paths in a rule of Make, as compilers write them."""
    return set(text.replace("\\\n", " ").split(":", 1)[1].split())


def in_command(text):
    """Files outside the tree that a generating command names, but for programs."""
    named = {pathlib.Path(path) for path in re.findall(r"(?<![\w./])/[\w./+-]+", text)}
    return {str(path) for path in named if path.is_file() and not path.stat().st_mode & 0o111}


def linked(root, flags, targets):
    """Absolute paths of what went into the targets beside the tree's files and Bazel's outputs."""
    execution_root = pathlib.Path(output_of(["bazel", "info", "execution_root"], root).strip())
    ran = actions(root, flags, targets)
    named = set()
    for arguments in ran["CppLink"]:
        if "-o" not in arguments:
            continue  # an archive
        # Once more, to the same bytes, with a map of what it was made of. The file of arguments
        # that Bazel names last repeats those that stand before it.
        made = arguments[arguments.index("-o") + 1]
        arguments = [argument for argument in arguments if not argument.startswith("@")]
        with tempfile.TemporaryDirectory() as folder:
            again, map_file = f"{folder}/program", pathlib.Path(folder, "map")
            subprocess.run([*arguments, f"-Wl,-Map={map_file}", "-o", again], cwd=execution_root,
                           check=True)
            if pathlib.Path(again).read_bytes() != (execution_root / made).read_bytes():
                raise Unknown(f"linking {made} again gave other bytes")
            named |= in_map(map_file.read_text(errors="replace"))
    for arguments in ran["CppCompile"]:
        dependencies = execution_root / arguments[arguments.index("-MF") + 1]
        named |= in_dependencies(dependencies.read_text())
    for arguments in ran["Genrule"]:
        named |= in_command(" ".join(arguments))
    ours = (str(pathlib.Path(root).resolve()), str(execution_root.resolve()))
    paths = {(execution_root / path).resolve() for path in named}
    return sorted(str(path) for path in paths if not str(path).startswith(ours))


def debian_owners(paths):
    """{path: package} of those that belong to a package. /lib is a link to /usr/lib."""
    asked = {alias: path for path in paths
             for alias in [path] + ([path[len("/usr"):]] if path.startswith("/usr/lib") else [])}
    said = subprocess.run(["dpkg", "-S", *asked], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True).stdout
    owners = {}
    for line in said.splitlines():
        packages, _, path = line.rpartition(": ")
        if path in asked and not packages.startswith("diversion by"):
            owners[asked[path]] = packages.split(",")[0].split(":")[0]
    return owners


def toolkit_owner(path):
    """(name, licence's path) of a file in a toolkit of CUDA that is no package of Debian's kind."""
    for folder in pathlib.Path(path).parents:
        if (folder / "EULA.txt").is_file():
            return "cuda-toolkit", folder / "EULA.txt"
        for info in folder.glob("dist-info/*.dist-info"):
            if f"/{pathlib.Path(path).relative_to(folder)}," in (info / "RECORD").read_text():
                return info.name.split("-")[0], info / "licenses/License.txt"
    return None


def owners(paths):
    """{name: licence's path} of the packages that the files belong to. Unknown if one has none."""
    found = {}
    of_debian = debian_owners(paths)
    for path in paths:
        if path in of_debian:
            name, licence = of_debian[path], DOC / of_debian[path] / "copyright"
        else:
            name, licence = toolkit_owner(path) or (None, None)
        if name is None or not licence.is_file():
            raise Unknown(f"found no licence of {path}, which is linked in: expected it to belong "
                          "to a package of Debian or a toolkit of CUDA, with its licence")
        found[name] = licence
    return found


def texts(licences):
    """{file name: bytes} of {name: path}, with the common licences that Debian's refer to."""
    found = {name: path.read_bytes() for name, path in licences.items()}
    for data in list(found.values()):
        for common in re.findall(COMMON + r"([\w.+-]*[\w+])", data.decode(errors="replace")):
            path = pathlib.Path(COMMON, common)
            if path.is_file():
                found[f"common/{common}"] = path.read_bytes()
    return found
