"""Runs upstream's own test data against gudgeon, for build/upstream-test, which says what its words and its table mean."""

import argparse
import collections
import concurrent.futures
import os
import sys
import tempfile

from goldens import Release
from gotest import Unread
from injection import Injector
from repository import Repository


def words():
    read = argparse.ArgumentParser(prog="build/upstream-test", description="Runs the test data of Istio's releases against gudgeon.")
    read.add_argument("folder", metavar="DIR", help="a bare git directory of istio/istio")
    read.add_argument("--release", action="append", metavar="R", help="1.9, 1.9.9 or master; all without it")
    read.add_argument("--golden", metavar="TEXT", help="goldens with TEXT in their name")
    read.add_argument("--verbose", action="store_true", help="each difference")
    read.add_argument("--markdown", action="store_true", help="the table as the documentation has it")
    return read.parse_args()


def wanted(release, names):
    return not names or any(release == name or release.startswith(f"{name}.") for name in names)


def told(verdict, verbose):
    print(f"  {verdict.word}: {verdict.golden.name}" + (f" ({', '.join(sorted(verdict.sentences))})" if verdict.sentences else ""))
    for line in verdict.differences if verbose and verdict.differences else verdict.failed[: None if verbose else 3]:
        print(f"      {line if verbose else line[:300]}")


def row(release, verdicts):
    count = collections.Counter(one.word for one in verdicts)
    by = collections.Counter(sentence for one in verdicts if one.word == "different" for sentence in one.sentences)
    sentences = ", ".join(f"{name} ({number})" for name, number in sorted(by.items()))
    share = 100 * count["equal"] / max(len(verdicts), 1)
    return [release, len(verdicts), count["equal"], count["different"], count["failed"], f"{share:.0f} %", sentences]


def injected(release, injector, pool, options):
    goldens = [one for one in release.goldens() if not options.golden or options.golden in one.name]
    verdicts = list(pool.map(lambda one: injector.judge(one, release.minor), goldens))
    print(f"{release.name}:", file=sys.stderr)
    for verdict in verdicts:
        if verdict.failed or options.verbose:
            told(verdict, options.verbose)
    return row(release.name, verdicts)


def table(rows, markdown):
    head = ["release", "goldens", "equal", "different", "failed", "equal in %", "different by"]
    if markdown:
        print("| " + " | ".join(head) + " |")
        print("|---|" + "---:|" * 5 + "---|")
        for one in rows:
            print("| " + " | ".join(str(word) for word in one) + " |")
        return
    for one in [head, *rows]:
        print(f"{one[0]:9} {one[1]:>8} {one[2]:>6} {one[3]:>10} {one[4]:>7} {one[5]:>11}  {one[6]}".rstrip())


def main():
    options = words()
    repository = Repository(options.folder)
    names = [one for one in repository.releases() if wanted(one, options.release)]
    if not names:
        sys.exit(f"cannot find a release {', '.join(options.release)}: there are {', '.join(repository.releases())}")
    rows = []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        injector = Injector(os.environ["GUDGEON"], folder)
        for name in names:
            try:
                rows.append(injected(Release(repository, name), injector, pool, options))
            except Unread as error:
                sys.exit(f"cannot read the tests of {name}: {error}")
    table(rows, options.markdown)
    sys.exit(1 if any(one[4] for one in rows) else 0)


main()
