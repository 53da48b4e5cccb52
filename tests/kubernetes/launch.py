"""launch.py NETWORK SCRIPT: runs a shell's script as process 1 of new namespaces, in the network namespace of that path, and ends with
its exit code, or 128 + n after signal n, which unshare(1) of Debian 12 does not tell."""

import ctypes
import os
import sys

MOUNT, UTS, IPC, PID, NETWORK = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000

libc = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


with open(sys.argv[1], "rb") as network:
    call("setns", network.fileno(), NETWORK)
call("unshare", MOUNT | UTS | IPC | PID)
child = os.fork()
if child == 0:
    os.execvp("sh", ["sh", "-c", sys.argv[2]])
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
sys.exit(128 - code if code < 0 else code)
