"""What is done with the fields of manifests, by the table in fields.yaml."""

import os

import yaml

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "fields.yaml"),
          encoding="utf-8") as _file:
    TABLE = yaml.safe_load(_file)


def _wrong(node, rule, path):
    if rule is None:
        yield f"{path} is neither executed nor in the table of what is only looked at"
    elif isinstance(node, list):
        for item in node:
            yield from _wrong(item, rule, path)
    elif isinstance(rule, list):
        if node not in rule:
            yield f"{path}: found {node}, and only {' or '.join(map(str, rule))} is executed"
    elif isinstance(rule, dict):
        for key, value in node.items():
            yield from _wrong(value, rule.get(key), f"{path}.{key}".lstrip("."))


def refusals(document):
    """What is in the document and is neither executed nor in the table, a sentence each."""
    kind, name = document["kind"], document["metadata"]["name"]
    for sentence in _wrong(document, dict(TABLE["any"], **TABLE.get(kind, {})), ""):
        yield f"{kind} {name}: {sentence}"
