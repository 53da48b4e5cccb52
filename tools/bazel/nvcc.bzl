"""Objects of CUDA C++."""

load("@cuda//:cuda.bzl", "CUDA")

# Machine code for the GPUs of the A100 and of the H100 and H200; later ones translate the PTX.
_TARGETS = ["arch=compute_80,code=sm_80", "arch=compute_90,code=sm_90", "arch=compute_90,code=compute_90"]

def nvcc_object(name, src, hdrs):
    """NAME.o of a .cu file, to be listed in a cc_library's srcs.

    Args:
      name: of the rule.
      src: the .cu file.
      hdrs: what it includes, but for the distribution's headers and the toolkit's.
    """
    native.genrule(
        name = name,
        srcs = [src] + hdrs,
        outs = [name + ".o"],
        cmd = " ".join(
            [CUDA + "/bin/nvcc", "-std=c++17", "-O3", "-I.", "-Werror=all-warnings"] +
            ["-gencode=" + target for target in _TARGETS] +
            ["-Xcompiler=-Wall,-Wextra,-fPIC", "-c $(location %s) -o $@" % src],
        ),
    )
