"""What tests ask of the pages: their commands, links and blocks."""

import collections
import re

# A command that a page shows: where, the whole of it with its continuations, and the lines that the
# page shows of what it prints.
Command = collections.namedtuple("Command", "page line text output")

# The first word of a command, behind `$ `, variables and an opening parenthesis.
PROGRAM = re.compile(
    r"\$ |\(?(?:[A-Z_]+=(?:\$\([^)]*\)|\S+) )*(?:rubato|rubato-server|rubato-worker|bazel|"
    r"bazel-bin/\S+|tools/\S+|tests/\S+|python/\S+|python3|pip|kubectl|helm|kustomize|kind|podman|"
    r"docker|buildah|ssh|tar|sudo|chromium|tensorboard|torchrun|jupyter|git|cd|printf|echo|perf|"
    r"debootstrap|kill|umask|seq|make)(?: |$|;)")


def blocks(text):
    """Line number, language and lines of each code block: fenced, or indented by four spaces."""
    fence, start, lines, before = None, 0, [], ""
    for number, line in enumerate(text.splitlines() + [""], 1):
        mark = re.match(r"\s*```(.*)$", line)
        if fence is None and mark:
            fence, start, lines = mark.group(1), number + 1, []
        elif fence is not None:
            if mark:
                yield start, fence, lines
                fence, lines = None, []
            else:
                lines.append(line)
        elif re.match(r"    +\S", line) if lines else re.match(r"    \S", line) and not before:
            start = start if lines else number
            lines.append(line[4:])
        elif lines:
            yield start, None, lines
            lines = []
        before = line


def commands(page, text):
    """Every command in the code blocks that are of no programming language."""
    found = []
    for start, language, lines in blocks(text):
        if language not in (None, "", "console"):
            continue
        session = any(line.startswith("$ ") for line in lines)
        words, output, first = "", [], 0
        for number, line in enumerate(lines + ["$ " if session else "rubato "], start):
            begins = line.startswith("$ ") if session else PROGRAM.match(line)
            if words.endswith("\\"):
                words = words[:-1] + line
            elif begins:
                if words:
                    found.append(Command(page, first, uncommented(words), output))
                words, output, first = line[2:] if session else line, [], number
            else:
                output.append(line)
    return found


def uncommented(command):
    """Without a comment at its end, and with single spaces."""
    command = re.sub(r"\s+#( .*)?$", "", command.replace("\\#", "#"))
    return re.sub(r"  +", " ", command).strip()


def links(text):
    """The targets of Markdown links and images, outside code."""
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "code", text)
    return re.findall(r"\]\(([^()\s]+)\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text)


def anchors(text):
    """As GitHub makes them of headings."""
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    made = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        made.add(re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-"))
    return made
