"""Gives each golden to `gudgeon inject`, and judges what came of it."""

import dataclasses
import hashlib
import os
import re
import subprocess
import tempfile

import compare
import rules


@dataclasses.dataclass
class Verdict:
    golden: object
    # Differences that no rule explains, as text; then it failed.
    failed: list
    # Sentences of the contract that want the others.
    sentences: set
    differences: list

    @property
    def word(self):
        return "failed" if self.failed else "different" if self.sentences else "equal"


def retag(value, tag):
    if isinstance(value, str):
        return tag(value)
    if isinstance(value, list):
        return [retag(one, tag) for one in value]
    if isinstance(value, dict):
        return {key: retag(one, tag) for key, one in value.items()}
    return value


class Injector:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def file(self, name, text):
        """A file of that text: the same one for the same text."""
        path = f"{self.folder}/{hashlib.sha256(text.encode()).hexdigest()[:24]}.{name}.yaml"
        if not os.path.exists(path):
            # Renamed into place: another thread may have the same text, and an empty file is a configuration, too.
            with tempfile.NamedTemporaryFile("w", dir=self.folder, encoding="utf-8", delete=False) as out:
                out.write(text)
            os.rename(out.name, path)
        return path

    def run(self, golden):
        command = [self.program, "inject", f"--nativeSidecars={golden.native}"]
        for flag in ("config", "values", "mesh"):
            named = {"config": "--injectConfigFile", "values": "--valuesFile", "mesh": "--meshConfigFile"}[flag]
            command += [named, self.file(flag, getattr(golden, flag))]
        command += ["-f", self.file("input", golden.given)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **golden.variables})

    def judge(self, golden, release):
        if release.minor <= 10:
            # Real configurations name a release in the image's tag, by which the agent is known; test data names none.
            tag = re.compile(r'(:|"tag": ?"|tag: )(unittest|latest)\b')
            golden.config, golden.values, golden.given, golden.wanted = (
                retag(one, lambda text: tag.sub(lambda found: found[1] + release.name, text))
                for one in (golden.config, golden.values, golden.given, golden.wanted)
            )
        done = self.run(golden)
        if golden.refusal:
            # 1 says that the input is at fault; upstream's words, in any case, are what a person looks for.
            right = done.returncode == 1 and golden.refusal.lower() in done.stderr.lower()
            return Verdict(golden, [] if right else [f"want a refusal with {golden.refusal!r}, got {shortly(done)}"], set(), [])
        if done.returncode != 0:
            found = [("refused", "a manifest", shortly(done))]
        else:
            found = compare.manifests(golden.wanted, done.stdout, release.defaults)
        if golden.loose:
            found = [one for one in found if not rules.loose(one)]
        verdict = Verdict(golden, [], set(), [compare.shown(one) for one in found])
        for one in found:
            sentence = rules.sentence(one, golden, release.minor)
            if sentence:
                verdict.sentences.add(sentence)
            else:
                verdict.failed.append(compare.shown(one))
        return verdict


def shortly(done):
    last = done.stderr.strip().splitlines()[-1:] or ["nothing on stderr"]
    return f"exit {done.returncode}: {last[0][:400]}"
