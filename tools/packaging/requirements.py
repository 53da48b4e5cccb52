"""What programs need of the system they run on, as Debian's packages."""

import pathlib
import re
import subprocess

from tree import Unknown

# The newest C library that may be needed, of which docs/install.md and the wheel's name tell too.
GLIBC = "2.34"
SYMBOLS = pathlib.Path("/var/lib/dpkg/info")
# Which package has a library that stays dynamic; the loader and glibc's parts are libc6's.
OWNERS = {"libstdc++.so.6": "libstdc++6", "libgcc_s.so.1": "libgcc-s1"}
LIBC = re.compile(r"(ld-linux-x86-64|lib(c|m|dl|rt|pthread))\.so\.\d+")



def needed(program):
    """{library: versions of symbols} that a program asks the loader for."""
    said = subprocess.run(["objdump", "-p", program], check=True, stdout=subprocess.PIPE,
                          text=True).stdout
    found = {library: set() for library in re.findall(r"^  NEEDED +(\S+)$", said, re.MULTILINE)}
    for library, rows in re.findall(r"^  required from (\S+):\n((?:    .*\n)+)", said,
                                    re.MULTILINE):
        found.setdefault(library, set()).update(re.findall(r"(\S+)$", rows, re.MULTILINE))
    return found


def version_key(version):
    return [int(number) for number in re.findall(r"\d+", version)]


def since(package, symbol_version):
    """The package's version that first had a version of symbols, by its own list of them."""
    text = (SYMBOLS / f"{package}:amd64.symbols").read_text()
    found = re.search(rf"^ {re.escape(symbol_version)}@\S+ (\S+)", text, re.MULTILINE)
    return found.group(1) if found else "0"


def of_debian(programs):
    """The field Depends, as a list."""
    least = {}
    for program in programs:
        for library, versions in needed(program).items():
            package = "libc6" if LIBC.fullmatch(library) else OWNERS.get(library)
            if package is None:
                raise Unknown(f"{program} needs {library}; expected glibc and libstdc++ alone")
            known = [since(package, version) for version in versions] + ["0"]
            least[package] = max([least.get(package, "0"), *known], key=version_key)
    if version_key(least["libc6"]) > version_key(GLIBC):
        raise Unknown(f"the programs need glibc {least['libc6']}; expected {GLIBC} at most")
    return [f"{package} (>= {version})" for package, version in sorted(least.items())]
