"""Gives what upstream's validation takes and refuses, its analyzers' data and its samples to `gudgeon validate`."""

import collections
import dataclasses
import hashlib
import json
import re
import subprocess

import verdicts
from documents import parts

VALIDATION = re.compile(r"(^|/)(validation|galley/testdata)/.*\.ya?ml$")
ANALYZERS = re.compile(r"config/analysis/analyzers/testdata/.*\.ya?ml$")


@dataclasses.dataclass
class Sample:
    name: str
    text: str
    # True if upstream takes it; `None` for the input of its analyzers.
    taken: object = True


def samples(repository, release):
    """{set: samples} of a release: what its validation takes and refuses, what its analyzers read, what it shows to users."""
    found = collections.defaultdict(list)
    for path in repository.files(release, ""):
        if not re.search(r"\.ya?ml$", path):
            continue
        if VALIDATION.search(path) and "/crds/" in path:
            found["dataset"] += documents(path, repository.must(release, path))
        elif VALIDATION.search(path) and (re.search(r"-(in)?valid\.ya?ml$", path) or "/dataset/" in path):
            found["dataset"].append(Sample(path, repository.must(release, path), "-invalid." not in path))
        elif ANALYZERS.search(path):
            found["analyzers"].append(Sample(path, repository.must(release, path), None))
        elif path.startswith("samples/"):
            text = repository.must(release, path)
            # Others are no objects of Kubernetes, which is refused where a file is named itself.
            if re.search(r"^apiVersion:", text, re.M):
                found["samples"].append(Sample(path, text))
    return found


def documents(path, text):
    """Each document of a file of upstream's rules for the API server, which writes in it what is wrong."""
    for at, one in enumerate(parts(text)):
        if re.search(r"^apiVersion:", one, re.M):
            yield Sample(f"{path} #{at + 1}", re.sub(r"^_err:.*\n?", "", one, flags=re.M), not re.search(r"^_err:", one, re.M))


class Validator:
    def __init__(self, program, folder):
        self.program, self.folder, self.known = program, folder, {}

    def findings(self, text):
        """(errors, crash): what is wrong with a text, each text asked about once."""
        name = hashlib.sha256(text.encode()).hexdigest()[:24]
        if name not in self.known:
            path = f"{self.folder}/{name}.yaml"
            with open(path, "w", encoding="utf-8") as out:
                out.write(text)
            done = subprocess.run([self.program, "validate", "-o", "json", "-f", path], capture_output=True, text=True, timeout=60, check=False)
            self.known[name] = self.read(done)
        return self.known[name]

    @staticmethod
    def read(done):
        try:
            found = [one for one in json.loads(done.stdout) if one["severity"] == "error"]
        except ValueError:
            found = None
        if done.returncode not in (0, 1) or found is None:
            return [], f"exit {done.returncode}: {(done.stderr.strip().splitlines() or ['nothing on stderr'])[-1][:300]}"
        return [f"{one['kind']} {one['path']}: {one['message']}" for one in found], None

    def judge(self, sample, kind):
        """('taken' | 'refused' | 'different' | 'failed', what is said)."""
        errors, crash = self.findings(sample.text)
        if crash:
            named = verdicts.sentence(kind, sample.name, crash)
            return ("different", [named]) if named else ("failed", [crash])
        if sample.taken is None or sample.taken == (not errors):
            return "refused" if errors else "taken", errors
        findings = errors or ["nothing is wrong with it"]
        named = [verdicts.sentence(kind, sample.name, one) for one in findings]
        return ("different", sorted(set(named))) if all(named) else ("failed", [one for one, name in zip(findings, named) if not name])
