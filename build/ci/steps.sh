# Shared by .ci/run and build/long: steps with their times, and work beside the others.
# shellcheck shell=bash

# Built once, so nothing is kept for a second build of the same: a third of the disk.
export CARGO_INCREMENTAL=0
# Properties try the same cases each time: what they find by chance, a developer's run finds, and not somebody's landing.
export PROPTEST_RNG_SEED=1
mkdir -p target
beside=''
trap '[ -z "$beside" ] || { kill -- "-$beside" && wait; } 2>/dev/null' EXIT

# step COMMAND...: what it took, how much of both cores that was, and what it left on a disk that may be small.
step() {
    local started=$SECONDS busy status=0
    busy=$(busy)
    # Kept: where a step stands before `||`, nothing else here would end it.
    "$@" || status=$?
    printf 'ci: %s: %d s, %d s of processor; %d s so far; target %s, %s free\n' "$*" $((SECONDS - started)) \
        $((($(busy) - busy) / 100)) "$SECONDS" \
        "$(du -sh target | cut -f 1)" "$(df -h --output=avail . | tail -1 | tr -d ' ')"
    return "$status"
}

# Hundredths of a second that the machine's processors have worked: user, nice, system.
busy() { awk '/^cpu / { print $2 + $3 + $4 }' /proc/stat; }

# start_beside FUNCTION: runs it in the background, its words in target/beside.log. A group of processes of its own, so that
# it ends when something else fails.
start_beside() {
    set -m
    "$1" >target/beside.log 2>&1 &
    beside=$!
    set +m
}

# wait_beside: ends where that failed, with all that it said.
wait_beside() {
    local status=0
    step wait "$beside" || status=$?
    beside=''
    if [ "$status" = 0 ]; then grep '^ci:' target/beside.log; else cat target/beside.log; fi
    return "$status"
}

# finish: a run changes no file of the repository, a lock that does not fit, say, and leaves no new one. The binaries would name
# another revision.
finish() {
    local changed
    changed=$(git status --porcelain)
    [ -z "$changed" ] || {
        printf 'ci: the run has changed files:\n%s\n' "$changed"
        return 1
    }
}
