"""The distribution's libraries as cc_library targets: linked as shared objects, or statically with
--config=portable."""

ABSL = [
    "statusor", "status", "strerror", "str_format_internal", "raw_hash_set", "hashtablez_sampler",
    "hash", "city", "bad_variant_access", "low_level_hash", "cord", "cordz_info", "cord_internal",
    "cordz_functions", "exponential_biased", "cordz_handle", "synchronization",
    "graphcycles_internal", "stacktrace", "symbolize", "debugging_internal", "demangle_internal",
    "malloc_internal", "time", "civil_time", "strings", "strings_internal", "base",
    "spinlock_wait", "int128", "throw_delegate", "bad_optional_access", "raw_logging_internal",
    "log_severity", "time_zone",
]

# What gRPC needs of Abseil besides ABSL, when it is linked statically.
ABSL_OF_GRPC = [
    "random_distributions", "random_seed_sequences", "random_internal_pool_urbg",
    "random_internal_randen", "random_internal_randen_hwaes",
    "random_internal_randen_hwaes_impl", "random_internal_randen_slow",
    "random_internal_platform", "random_internal_seed_material", "random_seed_gen_exception",
]

def system_library(name, libs, static_libs = None, dynamic_libs = [], deps = []):
    """Libraries of the distribution, whose headers are on the compiler's own search path.

    Args:
      name: of the cc_library.
      libs: names for -l.
      static_libs: names for -l when linked statically, where they differ.
      dynamic_libs: names for -l of what is never linked statically.
      deps: other libraries that these need.
    """
    static = ["-l" + lib for lib in (static_libs or libs)]
    native.cc_library(
        name = name,
        linkopts = select({
            "//:portable": ["-Wl,-Bstatic,--start-group"] + static +
                           ["-Wl,--end-group,-Bdynamic"],
            "//conditions:default": ["-Wl,--as-needed"] + ["-l" + lib for lib in libs],
        }) + ["-l" + lib for lib in dynamic_libs],
        deps = deps,
    )
