"""Whether docs/kubernetes.md prints the table of what is not executed. Usage: page_test.py PAGE"""

import os
import sys

sys.dont_write_bytecode = True  # beside the sources
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fields  # pylint: disable=wrong-import-position

with open(sys.argv[1], encoding="utf-8") as page:
    if fields.table() not in page.read():
        print(f"{sys.argv[1]} lacks this table:\n{fields.table()}")
        sys.exit(1)
