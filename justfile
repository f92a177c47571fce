# The only verbs. CI calls the same scripts.

# Format, lints, documentation, scripts.
check:
    build/check

# Everything that passes on a laptop and in CI.
test:
    build/test

# The tests that take longer than CI: all of them, or the named steps.
long *steps:
    build/long {{steps}}

# The release binary for this machine, or for `just build aarch64`.
build arch="":
    build/dist {{arch}}

# The container image from local files, run as a true container.
image:
    build/ci/image-test

# Size, memory, start, signals and quiet of the release binary, measured.
promises *flags:
    build/promises {{flags}}

# The same beside tini, dumb-init and catatonit, or PEER='COMMAND LINE', as a table and a plot.
bench *flags:
    build/measure/bench {{flags}}

# Envoy under pintle, a certificate rotated, the hot restart shown; `just demo injector`, `mesh`, `config`, `all`: gudgeon's.
demo *flags:
    build/demo {{flags}}

# The page of the status port, drawn by a real browser into target/page.png.
page *url:
    build/ci/page {{url}}

# Heap, parsers and core in an interpreter that refuses undefined behaviour.
miri seconds="900":
    build/ci/miri {{seconds}}

# Bytes thrown at every parser, for so many seconds each.
fuzz seconds="60" *targets:
    build/ci/fuzz {{seconds}} {{targets}}

# A million probes to the release binary, and its memory before and after.
soak probes="1000000":
    build/measure/soak {{probes}}

# A thousand epochs, ten thousand rotations, a hundred thousand orphans, and the memory before and after.
endure *amounts:
    build/measure/endure {{amounts}}

# A real Kubernetes API server on loopback, beside a command: `just kube up -- kubectl get namespaces`.
kube *arguments:
    build/kube {{arguments}}

# The tests that take one.
kube-test:
    build/kube-test

# gRPC's own xDS client with gudgeon discovery.
proxyless-test:
    build/ci/proxyless-test

# Sinks that nobody here wrote with gudgeon galley.
mcp-test:
    build/ci/mcp-test
