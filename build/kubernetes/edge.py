#!/usr/bin/env python3
"""Writes build/kubernetes/edge.yaml and all.yaml: the three manifests for a cluster of one small node, as three processes and as one.

One replica each, 96 MiB requested by all roles together, no PodDisruptionBudget (it would block the drain of the only node for ever),
no priority class that evicts a node's own workload. All other fields are those of the three files; a test of gudgeon's compares them.
"""

import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
HEAD = """\
# gudgeon on a small node: injector, discovery and galley, one replica each, 96 MiB of memory requested by all of them together.
#
#   kubectl apply -f build/kubernetes/crds.yaml -f build/kubernetes/edge.yaml
#   kubectl label namespace shop istio-injection=enabled
#
# While a role is replaced or its node restarts, the API server refuses new pods of the mesh and changes of rules, and their clients
# try again; Envoys keep the resources that they have. There is no PodDisruptionBudget, which would block the drain of the only node
# for ever, and no priority class, so that priorities of the node's own workload decide about evictions.
#
# build/kubernetes/edge.py generates this file from injector.yaml, discovery.yaml and galley.yaml, whose comments explain the fields. To
# remove gudgeon, delete the MutatingWebhookConfiguration and the ClusterRole istio-galley-istio-system first: while
# the webhooks are in place and gudgeon is gone, the API server refuses pods and rules.
"""
HEAD_OF_ALL = """\
# gudgeon on a small node, in one process: injector, discovery and galley with one client of the API server, one watch of each kind,
# one port for both webhooks, one readiness and one page. It requests 64 MiB of memory.
#
#   kubectl apply -f build/kubernetes/crds.yaml -f build/kubernetes/all.yaml
#   kubectl label namespace shop istio-injection=enabled
#
# While gudgeon is replaced or its node restarts, the API server refuses new pods of the mesh and changes of rules, and their clients
# try again; Envoys keep the resources that they have. There is no PodDisruptionBudget, which would block the drain of the only node
# for ever, and no priority class, so that priorities of the node's own workload decide about evictions. Galley reads no rules of
# remote clusters.
#
# build/kubernetes/edge.py generates this file from injector.yaml, discovery.yaml and galley.yaml, whose comments explain the fields. To
# remove gudgeon, delete the MutatingWebhookConfiguration and the ClusterRole istio-sidecar-injector-istio-system first: while
# the webhooks are in place and gudgeon is gone, the API server refuses pods and rules.
"""
# The account of the one process, and the accounts in whose place it is.
ACCOUNT = "istio-pilot-service-account"
ACCOUNTS = ("istio-sidecar-injector", "istio-galley-service-account", ACCOUNT)
OWNER = "istio-sidecar-injector-istio-system"
POLICY_OF_ALL = """\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: gudgeon
  namespace: istio-system
spec:
  podSelector:
    matchLabels: {app: gudgeon}
  policyTypes: [Ingress]
  ingress:
    - ports:
        - {protocol: TCP, port: 9443}
    - from:
        - namespaceSelector: {}
      ports:
        - {protocol: TCP, port: 15010}
        - {protocol: TCP, port: 15012}
    - from:
        - namespaceSelector:
            matchLabels: {kubernetes.io/metadata.name: istio-system}
      ports:
        - {protocol: TCP, port: 8080}
        - {protocol: TCP, port: 15014}
"""
DEPLOYMENT_OF_ALL = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: gudgeon
  namespace: istio-system
  labels: {app: gudgeon}
spec:
  replicas: 1
  selector:
    matchLabels: {app: gudgeon}
  strategy:
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
  template:
    metadata:
      labels:
        app: gudgeon
        sidecar.istio.io/inject: "false"
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/port: "15014"
        prometheus.io/path: /metrics
    spec:
      serviceAccountName: istio-pilot-service-account
      nodeSelector: {kubernetes.io/os: linux}
      terminationGracePeriodSeconds: 30
      securityContext:
        runAsNonRoot: true
        runAsUser: 1337
        runAsGroup: 1337
        fsGroup: 1337
        seccompProfile: {type: RuntimeDefault}
      containers:
        - name: gudgeon
          image: IMAGE
          imagePullPolicy: IfNotPresent
          args:
            - all
            - --port=9443
            - --self-signed
            - --proxy-image=PROXY
            - --discovery-address=istio-pilot.istio-system:15010
          env:
            - name: POD_NAMESPACE
              valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
          ports:
            - {name: https-webhooks, containerPort: 9443}
            - {name: grpc-xds, containerPort: 15010}
            - {name: https-xds, containerPort: 15012}
            - {name: http, containerPort: 8080}
            - {name: http-monitoring, containerPort: 15014}
          readinessProbe:
            httpGet: {path: /ready, port: http}
            initialDelaySeconds: 1
            periodSeconds: 5
          livenessProbe:
            httpGet: {path: /healthz, port: http}
            initialDelaySeconds: 5
            periodSeconds: 10
            timeoutSeconds: 3
          resources:
            requests: {cpu: 50m, memory: 64Mi}
            limits: {memory: 512Mi}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          volumeMounts:
            - {name: inject, mountPath: /etc/istio/inject, readOnly: true}
            - {name: mesh, mountPath: /etc/istio/config, readOnly: true}
            - {name: certs, mountPath: /etc/certs, readOnly: true}
      volumes:
        - name: inject
          configMap: {name: istio-sidecar-injector, optional: true}
        - name: mesh
          configMap: {name: istio, optional: true}
        - name: certs
          secret: {secretName: istio.istio-pilot-service-account, optional: true, defaultMode: 0440}
"""
# Memory requests: the promise for an idle role, and room for the services of such a cluster.
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
    """Comments of the three files also explain fields of two replicas, so the generated file has none."""
    return re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE)


def named(document):
    return re.search(r"^  name: (.*)$", document, flags=re.MULTILINE).group(1)


def of_one_process(document, kind):
    """Returns a document of a role for the one process; None if that process has another document instead."""
    name = named(document)
    if kind in ("PodDisruptionBudget", "NetworkPolicy", "Deployment", "ConfigMap"):
        return None
    if (kind == "ServiceAccount" and name != ACCOUNT) or (kind == "Service" and name == "istio-galley"):
        return None
    if kind.endswith("Binding"):
        subjects = "|".join(ACCOUNTS)
        document = replaced(document, rf"^    name: ({subjects})$", f"    name: {ACCOUNT}", name)
    if kind == "ClusterRole" and name == "istio-pilot-istio-system":
        # Galley reads the rules.
        document = re.sub(r"^  - apiGroups: \[[a-z]+\.istio\.io\]\n(    .*\n)+", "", document, flags=re.MULTILINE)
    if kind == "ClusterRole" and name == "istio-galley-istio-system":
        # The owner of galley's webhook configuration goes by the name of the Service, which is the injector's here.
        owner = r"^    resources: \[clusterroles\]\n    resourceNames: \[istio-galley-istio-system\]$"
        here = f"    resources: [clusterroles]\n    resourceNames: [{OWNER}]"
        document = replaced(document, owner, here, name)
    if kind == "Service":
        document = replaced(document, r"^  selector: .*$", "  selector: {app: gudgeon}", name)
    return document


def all_in_one():
    out, namespaces, images = HEAD_OF_ALL, set(), {}
    for role in MEMORY:
        text = (FOLDER / f"{role}.yaml").read_text()
        images["IMAGE"] = re.search(r"^ +image: (.*)$", text, flags=re.MULTILINE).group(1)
        proxy = re.search(r"--proxyImage=(.*)$", text, flags=re.MULTILINE)
        images["PROXY"] = proxy.group(1) if proxy else images["PROXY"]
        for document in text.split("\n---\n"):
            document = without_comments(document.rstrip("\n") + "\n")
            kind = re.search(r"^kind: (.*)$", document, flags=re.MULTILINE).group(1)
            if kind == "Namespace" and kind in namespaces:
                continue
            namespaces.add(kind)
            document = of_one_process(document, kind)
            if document:
                out += "---\n" + document
    last = POLICY_OF_ALL + "---\n" + DEPLOYMENT_OF_ALL
    for name, image in images.items():
        last = last.replace(name, image)
    (FOLDER / "all.yaml").write_text(out + "---\n" + last)


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
    all_in_one()


main()
