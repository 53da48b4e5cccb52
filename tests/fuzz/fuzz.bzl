"""One source with LLVMFuzzerTestOneInput, as a fuzzer and as a test of its corpus and `mutations` of each input."""

def fuzz_target(name, deps, mutations = 2000):
    native.cc_library(
        name = name,
        testonly = True,
        srcs = [name + "_fuzz.cc"],
        deps = deps,
        alwayslink = True,
    )
    native.cc_binary(
        name = name + "_fuzzer",
        testonly = True,
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],  # needs --config=fuzz
        deps = [":" + name],
    )
    native.cc_test(
        name = name + "_corpus_test",
        args = ["tests/fuzz/corpus/" + name, str(mutations)],
        data = native.glob(["corpus/%s/*" % name]),
        deps = [
            ":" + name,
            ":replay",
        ],
    )
