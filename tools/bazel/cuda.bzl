"""NVIDIA's CUDA toolkit, where it is installed."""

def _cuda_toolkit_impl(repository):
    wanted = repository.os.environ.get("RUBATO_CUDA", "")
    if wanted == "none":
        folders = []
    elif wanted:
        folders = [wanted]
    else:
        folders = ["/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda"]
    needed = ["bin/nvcc", "include/cuda_runtime.h", "include/cublasLt.h", "lib64/libcudart_static.a"]
    found = None
    for folder in folders:
        missing = [file for file in needed if not repository.path(folder + "/" + file).exists]
        if not missing:
            found = folder
            break
        if wanted:
            fail("RUBATO_CUDA: found no %s in %s; expected a CUDA toolkit, or none" %
                 (missing[0], folder))
    if not found:
        repository.file("BUILD", "")
        repository.file("cuda.bzl", "CUDA = None\nCUDNN = False\nNCCL = False\n")
        return
    repository.symlink(found + "/include", "include")
    repository.symlink(found + "/lib64", "lib64")
    cudnn = repository.path(found + "/include/cudnn_graph.h").exists
    nccl = repository.path(found + "/include/nccl.h").exists
    repository.file("cuda.bzl", "CUDA = %r\nCUDNN = %r\nNCCL = %r\n" % (found, cudnn, nccl))

    # cuBLAS, cuDNN and NCCL, which are large, are no dependencies: what uses them loads them as it runs.
    repository.file("BUILD", """
cc_library(
    name = "runtime",
    srcs = ["lib64/libcudart_static.a"],
    linkopts = ["-lpthread", "-ldl", "-lrt"],
    visibility = ["//visibility:public"],
    deps = [":headers"],
)

cc_library(
    name = "headers",
    hdrs = glob(
        ["include/*.h", "include/*.hpp", "include/crt/**", "include/nv/**", "include/cccl/nv/**"],
        allow_empty = True,
    ),
    includes = ["include", "include/cccl"],
    visibility = ["//visibility:public"],
)
""")

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    environ = ["RUBATO_CUDA"],
    local = True,
    doc = """`CUDA` in @cuda//:cuda.bzl is the toolkit's folder, or None; `CUDNN` and `NCCL`, whether the
headers of these libraries are in it; @cuda//:runtime is its runtime, linked statically, with the
headers. RUBATO_CUDA (--repo_env) names the folder, or is `none`.""",
)
