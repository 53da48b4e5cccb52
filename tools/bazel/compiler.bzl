"""What the compiler wants to be told so that one precompiled header fits all sources."""

# Of -O2 and more by themselves, and without effect at less.
_ALIKE = ["-munroll-only-small-loops", "-mvzeroupper"]

def _compiler_options_impl(repository):
    compiler = repository.os.environ.get("CC", "gcc")
    known = repository.execute([compiler] + _ALIKE + ["-E", "-x", "c", "/dev/null"])
    repository.file("BUILD", "")
    repository.file("options.bzl", "PRECOMPILED_COPTS = %s\n" % (_ALIKE if known.return_code == 0 else []))

compiler_options = repository_rule(
    implementation = _compiler_options_impl,
    environ = ["CC"],
    local = True,
    doc = """`PRECOMPILED_COPTS` in @compiler//:options.bzl are options for a precompiled header and all sources
that include it: GCC 14 refuses a header of -O3 at -O1 without them. GCC 12 has not both and needs none.""",
)
