"""C++ from .proto files by the distribution's protoc."""

def cc_proto(name, src, deps = [], grpc = False):
    """A cc_library of the messages of one .proto file and, with grpc, NAME_grpc of its services.

    Args:
      name: of the library.
      src: the .proto file, in this package.
      deps: other cc_proto libraries whose files it imports.
      grpc: whether it declares services.
    """
    stem = src[:-len(".proto")]
    path = native.package_name() + "/" + src
    native.filegroup(
        name = name + "_src",
        srcs = [src] + [dep + "_src" for dep in deps],
        visibility = ["//visibility:public"],
    )
    native.genrule(
        name = name + "_gen",
        srcs = [name + "_src"],
        outs = [stem + ".pb.cc", stem + ".pb.h"],
        cmd = "/usr/bin/protoc -I. --cpp_out=$(GENDIR) " + path,
    )
    native.cc_library(
        name = name,
        srcs = [stem + ".pb.cc"],
        hdrs = [stem + ".pb.h"],
        copts = ["-w"],  # generated code
        deps = deps + ["//tools/bazel:protobuf"],
        visibility = ["//visibility:public"],
    )
    if grpc:
        native.genrule(
            name = name + "_grpc_gen",
            srcs = [name + "_src"],
            outs = [stem + ".grpc.pb.cc", stem + ".grpc.pb.h"],
            cmd = "/usr/bin/protoc -I. --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin " +
                  "--grpc_out=$(GENDIR) " + path,
        )
        native.cc_library(
            name = name + "_grpc",
            srcs = [stem + ".grpc.pb.cc"],
            hdrs = [stem + ".grpc.pb.h"],
            copts = ["-w"],
            deps = [name, "//tools/bazel:grpc"],
            visibility = ["//visibility:public"],
        )
