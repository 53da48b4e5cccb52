"""Files as C++: embed.py NAMESPACE NAME=FILE ... writes a source with `extern const std::string_view NAME` for each.

A file that is missing ends it with one sentence.
"""

import sys


def literal(data):
    """The bytes as string literals of moderate length."""
    lines = []
    for begin in range(0, len(data), 2000):
        text = ""
        for byte in data[begin:begin + 2000]:
            char = chr(byte)
            if char in '"\\?':
                text += "\\" + char
            elif 32 <= byte < 127:
                text += char
            else:
                text += "\\%03o" % byte
        lines.append(f'    "{text}"')
    return "\n".join(lines) or '    ""'


def main():
    parts = ["#include <string_view>", f"namespace {sys.argv[1]} {{"]
    for argument in sys.argv[2:]:
        name, path = argument.split("=", 1)
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError as error:
            sys.exit(f"error: cannot embed {path}: {error.strerror}; "
                     "tools/install_packages installs what the build needs")
        parts.append(f"extern const std::string_view {name};")
        parts.append(f"const std::string_view {name}(\n{literal(data)},\n    {len(data)});")
    parts.append("}")
    print("\n".join(parts))


main()
