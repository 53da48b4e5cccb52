"""Jobs of real processes under random harm, round after round, each of a seed of its own.

Usage: harm_test.py RUBATO SERVER WORKER SLOW_DISK   (the binaries, and the library that makes a disk slow)

  RUBATO_HARM_SEED=7       the first round's seed (1); the next ones follow
  RUBATO_HARM_SECONDS=600  no round begins later (60)
  RUBATO_HARM_ROUNDS=1     no more rounds than these
  RUBATO_HARM_LEASE=4      seconds, of each job (2); for a machine with much other work
  RUBATO_HARM_TIMES=1      fails where going on, or an end, takes longer than it may; else that is only printed

A round that finds something says what, and where its files are. Where the machine took more than a quarter of a lease
from one thread within a lease, who is silent, late or gone proves nothing, and the round counts as starved; bits and
accounts count always. A seed repeats the same draws, at the same steps as far as the machine lets it. docs/views.md
says what is judged.
"""

import os
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # beside the sources

from job import LEASE, Programs
from round import run_round
from waiting import Machine


def main():
    programs = Programs(*sys.argv[1:])
    seed = int(os.environ.get("RUBATO_HARM_SEED", "1"))
    seconds = float(os.environ.get("RUBATO_HARM_SECONDS", "60"))
    rounds = int(os.environ.get("RUBATO_HARM_ROUNDS", "1000000000"))
    base = tempfile.mkdtemp(prefix="rubato_harm_", dir=os.environ.get("TEST_TMPDIR"))
    machine, begin, findings, late, starved, harms, times = Machine(LEASE), time.monotonic(), [], [], [], {}, {}
    number, untold = 0, 0
    while number < rounds and time.monotonic() - begin <= seconds:
        number += 1
        print(f"RUBATO_HARM_SEED={seed}", flush=True)
        done, finding = run_round(seed, programs, base, machine, lambda text: print(text, flush=True))
        for kind, count in done.harms.items():
            harms[kind] = harms.get(kind, 0) + count
        for kind, longest, taken in done.times:
            times.setdefault(kind, []).append((longest, taken))
        untold += done.is_untold
        for sentence in done.late:
            late.append(seed)
            print(f"LATE with RUBATO_HARM_SEED={seed}: {sentence}", flush=True)
        if finding is not None:
            is_starved = machine.worst > LEASE / 4 and not done.is_certain
            (starved if is_starved else findings).append(seed)
            print(f"{'starved' if is_starved else 'FOUND'} with RUBATO_HARM_SEED={seed}: {finding}\n  a thread lost "
                  f"{machine.worst:.2f} s of a lease to the machine; files: {base}/round-{seed}", flush=True)
        seed += 1
    machine.close()
    if not findings and not starved:
        os.rmdir(base)
    print(f"{number} rounds, {sum(harms.values())} harms, {len(findings)} findings {findings or ''}, "
          f"{len(late)} late {late or ''}, {len(starved)} starved {starved or ''}, {untold} that do not tell all "
          "they went back to")
    for kind, count in sorted(harms.items()):
        print(f"  {count:5d} {kind}")
    for kind, measured in sorted(times.items()):
        longest, taken = max(measured)
        print(f"  {kind}: longest standstill {longest:.2f} s, {taken:.2f} s of it taken by the machine")
    return 1 if findings or (late and os.environ.get("RUBATO_HARM_TIMES")) else 0


if __name__ == "__main__":
    sys.exit(main())
