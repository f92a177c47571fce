"""Checks a text of metrics for build/ci/check-metrics; the second argument is a file, a URL or - for stdin.

The first argument is promtool, whose findings count for pintle's own families: Envoy's and the application's have no HELP.
What neither it nor the client's parser looks at is checked here: the content type, lines, torn families, series that stand twice.
"""

import re
import subprocess
import sys
import urllib.request
from collections import Counter

from prometheus_client.parser import text_string_to_metric_families

PREFIX = "pintle_"
results = Counter()


def check(what, problems):
    """Counts one check, and says what is wrong."""
    problems = sorted(set(problems))
    results["failed" if problems else "passed"] += 1
    print(("not ok  " if problems else "ok      ") + what)
    for problem in problems[:20]:
        print("        " + problem)
    if len(problems) > 20:
        print(f"        and {len(problems) - 20} more")


def read(source):
    if source == "-":
        return sys.stdin.buffer.read()
    if source.startswith(("http://", "https://")):
        with urllib.request.urlopen(source, timeout=30) as answer:
            kind = answer.headers.get("content-type", "")
            right = kind.replace(" ", "").startswith("text/plain;version=0.0.4")
            check("the content type is text/plain; version=0.0.4", [] if right else [kind or "there is none"])
            return answer.read()
    with open(source, "rb") as file:
        return file.read()


def comments(text, word):
    """The families that a HELP or TYPE line stands for, with the rest of that line."""
    for line in text.split("\n"):
        parts = line.split(None, 3)
        if parts[:2] == ["#", word] and len(parts) > 2:
            yield parts[2], parts[3] if len(parts) > 3 else ""


def family_of(sample, types):
    """The family that a sample's name belongs to."""
    for end in ("", "_bucket", "_sum", "_count"):
        name = sample.removesuffix(end) if end else sample
        if name in types and (not end or types[name] in ("histogram", "summary")):
            return name
    return sample


def check_form(raw):
    check("it is UTF-8", [] if decodes(raw) else ["it is not"])
    text = raw.decode(errors="replace")
    check("every line ends in a line feed alone", ["the last does not"] * (not text.endswith("\n")) + [
        repr(line) for line in text.split("\n") if line.endswith("\r")])
    check("no `# EOF` is left", [line for line in text.split("\n") if line.rstrip() == "# EOF"])
    return text


def decodes(raw):
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def parse(text):
    """The families, or, where the parser gives up, none; the line that it gives up at is searched for."""
    try:
        families = list(text_string_to_metric_families(text))
    except Exception as error:  # noqa: BLE001 - whatever it raises is a finding
        bad = [f"{type(error).__name__}: {error}"]
        for line in text.split("\n"):
            try:
                list(text_string_to_metric_families(line + "\n"))
            except Exception:  # noqa: BLE001
                bad.append(line[:200])
        check("the parser of prometheus_client reads it", bad)
        return []
    check("the parser of prometheus_client reads it", [] if families else ["there is nothing in it"])
    return families


def check_families(text, families):
    types = dict(comments(text, "TYPE"))
    seen, last, torn = set(), None, []
    for line in text.split("\n"):
        if not line or line.startswith("#"):
            continue
        name = family_of(re.split(r"[{\s]", line, maxsplit=1)[0], types)
        if name != last and name in seen:
            torn.append(name)
        seen.add(name)
        last = name
    check("the samples of a family stand together", torn)
    series = Counter((s.name, tuple(sorted(s.labels.items()))) for family in families for s in family.samples)
    check("no series stands twice", [f"{name} {dict(labels)}" for (name, labels), count in series.items() if count > 1])


def check_with_promtool(promtool, text):
    """It ends with 1 where it cannot read the text, and with 3 where it has something to say of a family."""
    done = subprocess.run([promtool, "check", "metrics"], input=text.encode(), capture_output=True, check=False)
    lines = (done.stdout + done.stderr).decode(errors="replace").splitlines()
    check("promtool reads it", lines if done.returncode not in (0, 3) else [])
    check("promtool finds nothing in pintle's families", [line for line in lines if line.startswith(PREFIX)])


def check_own(text):
    samples = {line.split("{")[0].split(" ")[0] for line in text.split("\n") if line.startswith(PREFIX)}
    check("pintle's families are there", [] if samples else ["there are none"])
    check("each of pintle's has a TYPE", samples - {name for name, _ in comments(text, "TYPE")})


def main():
    promtool, source = sys.argv[1:]
    text = check_form(read(source))
    families = parse(text)
    check_families(text, families)
    check_with_promtool(promtool, text)
    check_own(text)
    sources = Counter()
    for family in families:
        sources[family.name.split("_")[0] + "_"] += 1
    listed = ", ".join(f"{name} {count}" for name, count in sources.most_common(8))
    print(f"{len(families)} families, {sum(len(f.samples) for f in families)} samples: {listed}")
    print(f"{results['passed']} passed, {results['failed']} failed")
    return 1 if results["failed"] else 0


sys.exit(main())
