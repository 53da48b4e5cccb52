"""Which libraries Abseil consists of: newer versions have more, and an inlined function of one may
call another that the source does not name."""

def _installed_abseil_impl(repository):
    compiler = repository.os.environ.get("CC", "gcc")
    one = repository.execute([compiler, "-print-file-name=libabsl_base.so"]).stdout.strip()
    names = []
    if one.startswith("/"):
        names = [library.basename for library in repository.path(one).dirname.readdir()]
    found = sorted([
        name[len("libabsl_"):-len(".so")]
        for name in names
        if name.startswith("libabsl_") and name.endswith(".so")
    ])
    repository.file("BUILD", "")
    repository.file("libraries.bzl", "INSTALLED_ABSL = %s\n" % found)

installed_abseil = repository_rule(
    implementation = _installed_abseil_impl,
    environ = ["CC"],
    local = True,
    doc = "`INSTALLED_ABSL` in @abseil//:libraries.bzl are the names of its shared libraries, after `absl_`.",
)
