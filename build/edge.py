#!/usr/bin/env python3
"""Writes build/kubernetes/edge.yaml: the three manifests for a cluster of one small node.

One replica each, 96 MiB requested by all roles together, no PodDisruptionBudget (it would hold up the drain of the only node for
ever), no class that pushes a node's own workload out. Everything else is as in the three files; a test of gudgeon's compares.
"""

import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).resolve().parent / "kubernetes"
HEAD = """\
# gudgeon on a small node: injector, discovery and galley, one replica each, 96 MiB of memory requested by all of them together.
#
#   kubectl apply -f build/kubernetes/crds.yaml -f build/kubernetes/edge.yaml
#   kubectl label namespace shop istio-injection=enabled
#
# While a role is replaced or its node restarts, pods that start in the mesh and changes of rules are refused and tried again;
# Envoys go on with what they have. There is no PodDisruptionBudget, which would hold up the drain of the only node for ever, and no
# priority class, so that the node's own workload decides what may be evicted.
#
# Made by build/edge.py from injector.yaml, discovery.yaml and galley.yaml, where everything is explained. To remove it, delete the
# MutatingWebhookConfiguration and the ClusterRole istio-galley-istio-system first: with the webhooks in place and nobody behind
# them, pods and rules are refused.
"""
# What each requests: its promise for an idle role, and room for the services of such a cluster.
MEMORY = {"injector": "16Mi", "discovery": "48Mi", "galley": "32Mi"}


def replaced(text, pattern, by, role):
    text, count = re.subn(pattern, by, text, flags=re.MULTILINE)
    if count != 1:
        sys.exit(f"cannot make edge.yaml: {count} times {pattern!r} in {role}.yaml")
    return text


def deployment(text, role):
    text = replaced(text, r"^  replicas: 2$", "  replicas: 1", role)
    text = replaced(text, r"(^      #[^\n]*\n)+^      priorityClassName: .*\n", "", role)
    text = replaced(text, r"(^      #[^\n]*\n)+^      topologySpreadConstraints:\n(^        .*\n)+", "", role)
    return replaced(text, r"(^            requests: \{cpu: \d+m, memory: )\d+Mi\}$", rf"\g<1>{MEMORY[role]}}}", role)


def without_comments(text):
    """They explain two replicas, too: who wants to know reads the files that this one is made from."""
    return re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE)


def main():
    out, namespaces = HEAD, set()
    for role in MEMORY:
        text = (FOLDER / f"{role}.yaml").read_text()
        for document in text.split("\n---\n"):
            kind = re.search(r"^kind: (.*)$", document, flags=re.MULTILINE).group(1)
            if kind == "PodDisruptionBudget" or (kind == "Namespace" and kind in namespaces):
                continue
            namespaces.add(kind)
            if kind == "Deployment":
                document = deployment(document.rstrip("\n") + "\n", role)
            out += "---\n" + without_comments(document.rstrip("\n") + "\n")
    (FOLDER / "edge.yaml").write_text(out)


main()
