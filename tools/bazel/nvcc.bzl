"""Objects of CUDA C++."""

load("@cuda//:cuda.bzl", "CUDA")

# Machine code for the GPUs of the A100, of the H100 and H200, and of both kinds of Blackwell; later
# ones translate the PTX.
_TARGETS = [
    "arch=compute_80,code=sm_80",
    "arch=compute_90,code=sm_90",
    "arch=compute_90,code=compute_90",
    "arch=compute_100,code=sm_100",
    "arch=compute_120,code=sm_120",
]

# Those whose PTX is not embedded.
_OTHERS = ["80", "100", "120"]

def nvcc_object(name, src, hdrs, table, table_maker):
    """NAME.o of a .cu file, to be listed in a cc_library's srcs; and NAME.80.ptx and so on, the PTX
    of which the machine code of each architecture was made, but for that which is embedded.

    Args:
      name: of the rule.
      src: the .cu file.
      hdrs: all that it includes, and no more, but for the distribution's headers and the
        toolkit's; the rule fails where it is not so.
      table: a file that says what became of each kernel.
      table_maker: the program that writes it (tensor/cuda/kernel_table.py).
    """
    kept = "$(RULEDIR)/" + name + ".kept"
    nvcc = CUDA + "/bin/nvcc -std=c++17 -I. "
    listed = " ".join(["$(locations %s)" % label for label in [src] + hdrs])

    # A header that is not listed would not have the object made again.
    check = "".join([
        "%s -M $(location %s) | grep -o '[^ ]*[.]\\(h\\|cu\\)\\b' | grep -v ^/ | " % (nvcc, src),
        "sed 's,^[.]/,,' | LC_ALL=C sort -u > %s/included; " % kept,
        "printf '%%s\\n' %s | LC_ALL=C sort -u > %s/listed; " % (listed, kept),
        "diff %s/listed %s/included >&2 || " % (kept, kept),
        "{ echo '%s: hdrs (<) are not what it includes (>)' >&2; exit 1; }; " % name,
    ])
    native.genrule(
        name = name,
        srcs = [src, table_maker] + hdrs,
        outs = [name + ".o", table] + ["%s.%s.ptx" % (name, other) for other in _OTHERS],
        cmd = "mkdir -p %s; " % kept + check + " ".join(
            [nvcc, "-O3", "-Werror=all-warnings"] +
            ["-gencode=" + target for target in _TARGETS] +
            ["-Xptxas=-v", "--keep", "--keep-dir", kept] +
            ["-Xcompiler=-Wall,-Wextra,-fPIC", "-c $(location %s) -o $(location %s.o)" % (src, name)],
        ) + (" > %s/log 2>&1 || { cat %s/log >&2; exit 1; }; " % (kept, kept)) +
        ("/usr/bin/python3 $(location %s) $$(%s/bin/nvcc --version | sed -n 's/.*, V//p') %s/log %s " %
         (table_maker, CUDA, kept, kept)) +
        ("> $(location %s) && " % table) +
        "".join([
            "mv %s/*_%s.ptx $(location %s.%s.ptx) && " % (kept, other, name, other)
            for other in _OTHERS
        ]) + "rm -r %s" % kept,
    )
