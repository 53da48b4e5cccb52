"""A tree of files as a tarball, a Debian package and a wheel.

The bytes are a function of the arguments alone: files in the order of their names, owned by root,
with one time for all.
"""

import base64
import gzip
import hashlib
import io
import lzma
import tarfile
import time
import zipfile

from requirements import GLIBC
from tree import document, folders

SUMMARY = "Parameter server for training neural networks"
MODULES = "share/rubato/python/"  # in a tree; for PYTHONPATH where it is no wheel
WHEEL_TAG = f"py3-none-manylinux_{GLIBC.replace('.', '_')}_x86_64"


def tar(tree, top, epoch):
    """An uncompressed archive of the tree below the folder `top`, that folder included."""
    out = io.BytesIO()

    def header(path, kind, mode, size=0):
        info = tarfile.TarInfo(path)
        info.type, info.mode, info.size, info.mtime = kind, mode, size, epoch
        info.uname = info.gname = "root"
        return info

    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for folder in [top] + [f"{top}/{folder}" for folder in folders(tree)]:
            archive.addfile(header(folder, tarfile.DIRTYPE, 0o755))
        for path, file in sorted(tree.items()):
            archive.addfile(header(f"{top}/{path}", tarfile.REGTYPE, file.mode, len(file.data)),
                            io.BytesIO(file.data))
    return out.getvalue()


def tarball(tree, top, epoch):
    """tar.gz"""
    out = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=out, mode="wb", compresslevel=6, mtime=epoch) as file:
        file.write(tar(tree, top, epoch))
    return out.getvalue()


def deb(tree, version, depends, epoch):
    """A binary package of Debian (deb(5)) that installs the tree below /usr."""
    tree = {f"usr/{path}": file for path, file in tree.items()}
    sums = "".join(f"{hashlib.md5(file.data).hexdigest()}  {path}\n"
                   for path, file in sorted(tree.items()))
    control = f"""Package: rubato
Version: {version}
Architecture: amd64
Maintainer: The Rubato authors <rubato@localhost>
Installed-Size: {sum(len(file.data) for file in tree.values()) // 1024}
Depends: {", ".join(depends)}
Section: science
Priority: optional
Description: {SUMMARY}
 Servers hold a model's parameters and apply updates that they receive over
 gRPC; workers compute gradients. `rubato train` starts both on this machine.
"""

    def packed(files):
        # dpkg wants "./" before each name.
        return lzma.compress(tar(files, ".", epoch), preset=2)

    members = [("debian-binary", b"2.0\n"),
               ("control.tar.xz", packed({"control": document(control),
                                          "md5sums": document(sums)})),
               ("data.tar.xz", packed(tree))]
    out = b"!<arch>\n"
    for name, data in members:
        out += f"{name:<16}{epoch:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
        out += data + b"\n" * (len(data) % 2)
    return out


def wheel(tree, version, epoch):
    """A wheel (PEP 427) of the distribution rubato_ps: programs as scripts, what lies in MODULES as Python's modules,
    all else as data."""
    info = f"rubato_ps-{version}.dist-info"
    files = {}
    for path, file in tree.items():
        if path.startswith(MODULES):
            files[path[len(MODULES):]] = file
            continue
        scheme = path.replace("bin/", "scripts/", 1) if path.startswith("bin/") else f"data/{path}"
        files[f"rubato_ps-{version}.data/{scheme}"] = file
    files[f"{info}/METADATA"] = document(f"""Metadata-Version: 2.1
Name: rubato-ps
Version: {version}
Summary: {SUMMARY}
License: Apache-2.0
Requires-Python: >=3.9

The commands `rubato`, `rubato-server` and `rubato-worker`, which begin with
`rubato train configs/quickstart.yaml`, and the module `rubato`, by which a script trains a model
of its own. It needs no other distribution; PyTorch or NumPy are the script's.
""")
    files[f"{info}/WHEEL"] = document(f"""Wheel-Version: 1.0
Generator: rubato {version}
Root-Is-Purelib: false
Tag: {WHEEL_TAG}
""")
    record = f"{info}/RECORD"
    rows = []
    for path, file in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(file.data).digest()).decode().rstrip("=")
        rows.append(f"{path},sha256={digest},{len(file.data)}\n")
    files[record] = document("".join(rows) + f"{record},,\n")

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        # RECORD last, as PEP 427 recommends.
        for path in sorted(files, key=lambda path: (path == record, path)):
            entry = zipfile.ZipInfo(path, time.gmtime(epoch)[:6])
            entry.create_system = 3  # Unix: the modes below mean something
            entry.external_attr = (0o100000 | files[path].mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[path].data)
    return out.getvalue()
