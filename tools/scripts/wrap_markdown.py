#!/usr/bin/python3
"""Wraps paragraphs and list items of Markdown at 100 columns, where one has a longer line.

    wrap_markdown.py FILE.md...

Tables, code, headings and comments stay as they are, and so does a paragraph that fits.
"""

import re
import sys
import textwrap

WIDTH = 100
MARKER = re.compile(r"( *)((?:[*-]|\d+\.) +)?")


def wrapped(lines):
    """A paragraph or item, as lines that fit."""
    if all(len(line) <= WIDTH for line in lines):
        return lines
    indent, marker = MARKER.match(lines[0]).groups()
    first = indent + (marker or "")
    words = " ".join([lines[0][len(first):]] + [line.strip() for line in lines[1:]])
    # A code span or a link is better not torn apart, but may be where it is long.
    return textwrap.fill(words, WIDTH, initial_indent=first, subsequent_indent=" " * len(first),
                         break_long_words=False, break_on_hyphens=False).split("\n")


def wrap(text):
    done, block, fence, comment, before, in_list = [], [], False, False, "", False

    def close():
        done.extend(wrapped(block) if block else [])
        block.clear()

    for line in text.split("\n"):
        mark = line.lstrip().startswith("```")
        comment = comment or line.startswith("<!--")
        item = re.match(r" *([*-]|\d+\.) ", line)
        code = re.match(r" {4}", line) and not block and not in_list
        if fence or mark or comment or not line.strip() or code or re.match(r" *(\||#|<|!\[)", line):
            close()
            done.append(line)
            fence ^= mark
            comment = comment and "-->" not in line
            if line.strip() and not line.startswith(" "):
                in_list = False
        else:
            if item or (before == "" and not line.startswith(" ")):
                close()
                in_list = bool(item)
            block.append(line)
        before = line
    close()
    return "\n".join(done)


def main():
    for path in sys.argv[1:]:
        with open(path) as file:
            text = file.read()
        with open(path, "w") as file:
            file.write(wrap(text))


if __name__ == "__main__":
    main()
