"""Code with a bug on purpose, which a test must notice."""

load(":cc.bzl", "TEST_COPTS")

# Compiled more often than run, as tests are; what a bug leaves unused is no matter.
MUTANT_COPTS = TEST_COPTS + ["-w"]

def mutate(name, source, out, texts):
    """Puts a bug into a source file: [old, new, old, new, ...]."""
    native.genrule(
        name = name,
        testonly = True,
        srcs = [source],
        outs = [out],
        cmd = "python3 $(location //tools/bazel:mutate.py) $< $@ " + " ".join([
            "'" + text.replace("$", "$$").replace("'", "'\\''") + "'"
            for text in texts
        ]),
        tools = ["//tools/bazel:mutate.py"],
    )
