"""Runs upstream's own test data against gudgeon, for build/ci/upstream-test, which explains its words and its tables."""

import argparse
import collections
import concurrent.futures
import os
import sys
import tempfile

import rules
import validation
import xds
from goldens import Release
from gotemplate import Broken
from gotest import Unread
from injection import Injector
from repository import Repository

PARTS = ("injection", "validation", "xds")
SETS = ("dataset", "samples", "analyzers")


def words():
    read = argparse.ArgumentParser(prog="build/ci/upstream-test", description="Runs the test data of Istio's releases against gudgeon.")
    read.add_argument("folder", metavar="DIR", help="a bare git directory of istio/istio")
    read.add_argument("--release", action="append", metavar="R", help="1.9, 1.9.9 or master; all without it")
    read.add_argument("--only", choices=PARTS, help="one part; all without it")
    read.add_argument("--golden", metavar="TEXT", default="", help="goldens with TEXT in their names")
    read.add_argument("--verbose", action="store_true", help="every difference, also one that is named")
    read.add_argument("--markdown", action="store_true", help="the tables as the documentation has them")
    return read.parse_args()


def wanted(release, names):
    return not names or any(release == name or release.startswith(f"{name}.") for name in names)


def report(release, word, name, lines, verbose):
    print(f"{release}: {word}: {name}", file=sys.stderr)
    for line in lines if verbose else lines[:3]:
        print(f"    {line if verbose else line[:300]}", file=sys.stderr)


def counted(names):
    return ", ".join(f"{name} ({number})" for name, number in sorted(collections.Counter(names).items()))


def injected(release, injector, pool, options):
    release.check()
    goldens = [one for one in release.goldens() if options.golden in one.name]
    found = list(pool.map(lambda one: injector.judge(one, release), goldens))
    for one in found:
        if one.failed:
            report(release.name, "failed", one.golden.name, one.failed, options.verbose)
        elif options.verbose and one.sentences:
            report(release.name, "different", f"{one.golden.name} by {', '.join(sorted(one.sentences))}", one.differences, True)
    count = collections.Counter(one.word for one in found)
    sentences = counted(sentence for one in found if one.word == "different" for sentence in one.sentences)
    share = f"{100 * count['equal'] / len(found):.0f} %" if found else "-"
    return [release.name, len(found), count["equal"], count["different"], count["failed"], share, sentences]


def validated(repository, release, validator, pool, options):
    row, named, failed = [release], [], 0
    found = validation.samples(repository, release)
    for kind in SETS:
        given = [one for one in found[kind] if options.golden in one.name]
        judged = list(zip(given, pool.map(lambda one, kind=kind: validator.judge(one, kind), given)))
        count = collections.Counter(word for _, (word, _) in judged)
        for sample, (word, findings) in judged:
            if word == "failed" or (options.verbose and word != "taken"):
                report(release, word, sample.name, findings, options.verbose)
            named += findings if word == "different" else []
        failed += count["failed"]
        row += [count["taken"], count["refused"]]
    return [*row, sum(1 for _ in named), failed, counted(named)]


def served(repository, release, folder, options):
    found = [one for one in xds.judge(repository, release, os.environ["GUDGEON"], folder) if options.golden in one.name]
    if not found:
        return None
    for one in found:
        if one.failed:
            report(release, "failed", one.name, one.failed, options.verbose)
        elif options.verbose and one.sentences:
            report(release, "different", f"{one.name} by {', '.join(sorted(one.sentences))}", one.differences, True)
    count = collections.Counter((one.kept, one.word) for one in found)
    kept = [count[True, word] for word in ("equal", "different")]
    failed = count[True, "failed"] + count[False, "failed"]
    sentences = counted(sentence for one in found if one.word == "different" for sentence in one.sentences)
    return [release, sum(one.kept for one in found), *kept, count[False, "different"], failed, sentences]


INJECTION = ["release", "goldens", "equal", "different", "failed", "equal in %", "different by"]
VALIDATION = ["release", "taken", "refused", "samples", "refused", "analyzers", "refused", "different", "failed", "different by"]

XDS = ["release", "resources", "equal", "different", "ours alone", "failed", "different by"]


def table(head, rows, markdown):
    cells = [[str(cell) for cell in one] for one in [head, *rows]]
    if markdown:
        for at, one in enumerate(cells):
            print(f"| {' | '.join(one)} |")
            if not at:
                print("|---|" + "---:|" * (len(head) - 2) + "---|")
        return
    widths = [max(len(one[at]) for one in cells) for at in range(len(head) - 1)]
    for one in cells:
        print("  ".join([one[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(one[1:], widths[1:])), one[-1]]).rstrip())


def legend(named):
    """The sentences that explain differences, with their names."""
    print()
    for name, text in rules.SENTENCES.items():
        if any(name in one for one in named):
            print(f"* **{name}**: {text}.")


def main():
    options = words()
    repository = Repository(options.folder)
    names = [one for one in repository.releases() if wanted(one, options.release)]
    if not names:
        sys.exit(f"cannot find a release {', '.join(options.release)}: there are {', '.join(repository.releases())}")
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        injector = Injector(os.environ["GUDGEON"], folder)
        validator = validation.Validator(os.environ["GUDGEON"], folder)
        failed = 0
        if options.only in (None, "injection"):
            rows = [named(one, lambda one=one: injected(Release(repository, one), injector, pool, options)) for one in names]
            table(INJECTION, rows, options.markdown)
            if options.markdown:
                legend([one[-1] for one in rows])
            failed += sum(one[4] for one in rows)
        if options.only in (None, "validation"):
            rows = [validated(repository, one, validator, pool, options) for one in names]
            table(VALIDATION, rows, options.markdown)
            failed += sum(one[8] for one in rows)
        if options.only in (None, "xds"):
            rows = [named(one, lambda one=one: served(repository, one, folder, options)) for one in names]
            rows = [one for one in rows if one]
            table(XDS, rows, options.markdown)
            failed += sum(one[5] for one in rows)
    sys.exit(1 if failed else 0)


def named(release, work):
    try:
        return work()
    except (Unread, Broken) as error:
        sys.exit(f"cannot read {release}: {error}")


main()
