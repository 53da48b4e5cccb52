"""What the compiler wants to be told so that one precompiled header fits all sources."""

# Of -O2 and more by themselves, and without effect at less.
_ALIKE = ["-munroll-only-small-loops", "-mvzeroupper"]

def _compiler_options_impl(repository):
    compiler = repository.os.environ.get("CC", "gcc")
    known = [
        option
        for option in _ALIKE
        if repository.execute([compiler, option, "-E", "-x", "c", "/dev/null"]).return_code == 0
    ]
    repository.file("BUILD", "")
    repository.file("options.bzl", "PRECOMPILED_COPTS = %s\n" % known)

compiler_options = repository_rule(
    implementation = _compiler_options_impl,
    environ = ["CC"],
    local = True,
    doc = """`PRECOMPILED_COPTS` in @compiler//:options.bzl are options for a precompiled header and all sources
that include it: GCC 14 refuses a header of -O3 at -O1 without them. GCC 12 lacks the first.""",
)
