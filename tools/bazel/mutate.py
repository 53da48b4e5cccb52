"""Puts a bug into a source file: replaces texts that must be there.

    mutate.py IN OUT OLD NEW [OLD NEW ...]
"""

import sys


def main():
    source, target, *texts = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        text = file.read()
    for old, new in zip(texts[::2], texts[1::2]):
        if old not in text:
            sys.exit(f"{source} does not have: {old}")
        text = text.replace(old, new)
    with open(target, "w", encoding="utf-8") as file:
        file.write(text)


main()
