"""What comes of attacks on a job: prints a table of them, and fails if one came to something else than it should, a
server died, the job's bits are not those of one that nobody disturbs, or the servers have grown.

Usage: attacks_test.py RUBATO SERVER WORKER [WORD]   (the binaries; only attacks that have the word in them)
"""

import concurrent.futures
import re
import sys
import tempfile

sys.dont_write_bytecode = True  # beside the sources

import keys
import members
import strangers
from http2 import Gone
from world import World

def observe(row):
    try:
        return row.run()
    except (Gone, OSError, ValueError, KeyError, IndexError) as error:
        return f"the attack failed: {error!r}"


def attack(world, word):
    """All rows of which this is a word; how many came to something else than they should."""
    rows = [row for kind in (strangers, keys, members) for row in kind.rows(world)
            if word in f"{row.who}: {row.attack}"]
    slow = [row for row in rows if row.takes_time]
    with concurrent.futures.ThreadPoolExecutor(len(slow) + 1) as threads:
        observed = dict(zip(map(id, slow), threads.map(observe, slow)))
    observed.update((id(row), observe(row)) for row in rows if not row.takes_time)
    wrong = [row for row in rows if not re.fullmatch(row.expected, observed[id(row)])]
    print("| who | attack | what happened |\n|---|---|---|")
    for row in rows:
        print(f"| {row.who} | {row.attack} | {observed[id(row)]} |")
    for row in wrong:
        print(f"\nWRONG: {row.attack}\n  observed: {observed[id(row)]}\n  expected: {row.expected}")
    return len(wrong)


def main():
    with tempfile.TemporaryDirectory(prefix="rubato_attacks_") as folder:
        world = World(*sys.argv[1:4], folder)
        try:
            before, sockets = world.resident(), world.sockets()
            wrong = []
            world.forget_peak()
            rows = attack(world, sys.argv[4] if len(sys.argv) > 4 else "")
            # When it has forgotten all who have called, and has given back what they left.
            world.await_sockets(sockets)
            peak = world.peak()
            most = {name: size * 11 // 10 for name, size in before.items()}
            after = world.await_resident(most)
            print()
            for name, size in before.items():
                print(f"{name}: {size} KiB resident before, at most {peak[name]} KiB meanwhile, "
                      f"{after[name]} KiB after.")
                if after[name] > most[name]:
                    wrong.append(f"{name} has grown")
            wrong += world.end()
        finally:
            world.close()
    for sentence in wrong:
        print(f"WRONG: {sentence}")
    return 1 if wrong or rows else 0


if __name__ == "__main__":
    sys.exit(main())
