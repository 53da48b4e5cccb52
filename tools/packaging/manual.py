"""Manual pages (man(7)) made of what the programs print for --help."""

import re
import time

TITLES = {"rubato": "train a model across server and worker processes",
          "rubato-server": "one shard of a Rubato job, or its coordinator",
          "rubato-worker": "computes gradients of a Rubato job",
          "rubato-tools": "the verbs of rubato that training does not need"}


def literal(text):
    """Text as it stands, in a fixed width."""
    lines = []
    for line in text.rstrip("\n").split("\n"):
        line = line.replace("\\", "\\e").replace("-", "\\-")
        lines.append("\\&" + line if line[:1] in (".", "'") else line)
    return ".nf\n" + "\n".join(lines) + "\n.fi\n"


def verbs(help_text):
    """The verbs that `rubato help` lists."""
    listed = re.search(r"^Verbs:\n((?:  .*\n)+)", help_text, re.MULTILINE).group(1)
    return [line.split()[0] for line in listed.splitlines()]


def page(program, version, epoch, ask):
    """NAME.1 of a program. ask(arguments) is what the program prints for them."""
    date = time.strftime("%Y-%m-%d", time.gmtime(epoch))
    name = program.replace("-", "\\-")
    help_text = ask(["--help"])
    text = f'.TH {program.upper()} 1 "{date}" "rubato {version}" "Rubato"\n'
    text += f".SH NAME\n{name} \\- {TITLES[program]}\n"
    text += ".SH DESCRIPTION\n" + literal(help_text)
    if program == "rubato":
        for verb in verbs(help_text):
            text += f'.SH "RUBATO {verb.upper()}"\n' + literal(ask([verb, "--help"]))
    others = ", ".join(f"\\fB{other}\\fR(1)".replace("-", "\\-")
                       for other in TITLES if other != program)
    return text + f".SH SEE ALSO\n{others}\n"
