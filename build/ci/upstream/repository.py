"""The files of a bare git directory, at any of its tags."""

import re
import subprocess


class Repository:
    def __init__(self, folder):
        self.folder = folder
        # A file that a partial copy lacks is absent, and not fetched.
        command = ["git", f"--git-dir={folder}", "-c", "core.packedGitLimit=256m", "cat-file", "--batch"]
        self.reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.listed = {}

    def run(self, *words):
        return subprocess.run(["git", f"--git-dir={self.folder}", *words], check=True, capture_output=True, text=True).stdout

    def releases(self):
        """The last tag of each minor release from 1.1, and the newest commit as master."""
        last = {}
        for tag in self.run("tag").split():
            found = re.fullmatch(r"1\.(\d+)\.(\d+)", tag)
            if found and int(found[1]) > 0:
                minor = int(found[1])
                last[minor] = max(last.get(minor, 0), int(found[2]))
        return [*(f"1.{minor}.{last[minor]}" for minor in sorted(last)), "master"]

    def commit(self, release):
        return "HEAD" if release == "master" else release

    def read(self, release, path):
        """A file's text, or nothing."""
        self.reader.stdin.write(f"{self.commit(release)}:{path}\n".encode())
        self.reader.stdin.flush()
        head = self.reader.stdout.readline().split()
        if len(head) != 3 or head[1] != b"blob":
            # A folder has contents too.
            if len(head) == 3:
                self.reader.stdout.read(int(head[2]) + 1)
            return None
        text = self.reader.stdout.read(int(head[2]))
        self.reader.stdout.read(1)
        return text.decode(errors="replace")

    def must(self, release, path):
        text = self.read(release, path)
        if text is None:
            raise SystemExit(f"cannot read {path} of {release}: it is not there")
        return text

    def files(self, release, folder):
        """Paths below a folder, relative to it."""
        if release not in self.listed:
            self.listed[release] = self.run("ls-tree", "-r", "--name-only", self.commit(release)).splitlines()
        folder = folder.rstrip("/") + "/" if folder else ""
        return [path[len(folder) :] for path in self.listed[release] if path.startswith(folder)]
