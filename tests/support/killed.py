"""Processes that are killed while they append to a store: ``python tests/support/killed.py --rounds 100``.

In each round a process appends pieces of all sizes and reports each before and after. It is killed at a random moment.
The store must then have all rows that were acknowledged, and either all or none of the append that was interrupted.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time

import headspan as hs
import numpy as np

KEY_HEADS, HEAD_DIM, VALUE_DIM = 2, 3, 2


def rows(first, last):
    """Keys and values that are different in each row."""
    number = np.arange(first, last, dtype=np.float64)[None, :, None]
    head = np.arange(KEY_HEADS)[:, None, None] * 0.25
    return number + head + np.arange(HEAD_DIM) / 16, -number - head - np.arange(VALUE_DIM) / 16


def append_until_killed(path, seed):
    rng = random.Random(seed)
    with hs.memory.KeyValueStore(path, KEY_HEADS, HEAD_DIM, value_dim=VALUE_DIM, dtype="float64") as store:
        count = len(store)
        print("open", count, flush=True)
        while True:
            more = rng.choice([1, 1, 2, 7, 100, 3000, 9000])
            print("begin", count + more, flush=True)
            store.append(*rows(count, count + more))
            count += more
            print("done", count, flush=True)


def kill_one(path, seed):
    """Kill a process while it appends, and return how many rows it acknowledged and how many it wanted to have."""
    command = [sys.executable, __file__, "--path", str(path), "--seed", str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        opened = child.stdout.readline()
        time.sleep(random.Random(seed).uniform(0, 0.1))
        child.kill()
        lines = (opened + child.stdout.read()).splitlines(keepends=True)
    said = [line.split() for line in lines if line.endswith("\n")]
    acknowledged = [int(count) for word, count in said if word in ("open", "done")]
    return acknowledged[-1], int(said[-1][1])


def check_one(path, seed):
    """Run a round, and return the number of rows in the store."""
    acknowledged, asked = kill_one(path, seed)
    with hs.memory.KeyValueStore(path, readonly=True) as store:
        count = len(store)
        assert count in (acknowledged, asked), f"{count} rows, of which {acknowledged} were acknowledged, {asked} asked"
        for stored, expected in zip(store.rows(0, count), rows(0, count), strict=True):
            assert np.array_equal(stored, expected)
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--path", help="append to this store until killed")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.path:
        append_until_killed(options.path, options.seed)
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seed, options.seed + options.rounds):
            count = check_one(f"{folder}/store", seed)
        print(f"{options.rounds} rounds, {count} rows: none that was acknowledged is lost, no append is torn")


if __name__ == "__main__":
    main()
