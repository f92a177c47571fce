// What build/measure/bench, build/promises and build/measure/endure start under each manager. One program, so that all of them start the
// same:
//
//   bench at CMD ARGS...   notes the time in the environment, then becomes CMD
//   BENCH=start            writes the nanoseconds since then, ends
//   BENCH=signal           writes when each USR1 arrived
//   BENCH=orphans          leaves ORPHANS processes to its manager, lets them end, writes how long they could be seen
//   BENCH=leave            at each USR1 leaves ORPHANS processes to its manager, each ending at once
//   BENCH=idle             nothing
//
// Lines begin with "bench", for managers write to the same place. Arguments are ignored otherwise: a proxy has many.
#define _GNU_SOURCE
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_ORPHANS = 100000 };

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void say(const char *format, ...) {
    char text[64];
    va_list rest;
    va_start(rest, format);
    int n = vsnprintf(text, sizeof text, format, rest);
    va_end(rest);
    if (write(2, text, n) != n)
        _exit(1);
}

static void nap(long nanoseconds) {
    struct timespec t = {nanoseconds / 1000000000L, nanoseconds % 1000000000L};
    nanosleep(&t, NULL);
}

static int at(char **command) {
    char text[32];
    snprintf(text, sizeof text, "%lld", now());
    setenv("BENCH_BEGAN", text, 1);
    execvp(command[0], command);
    perror(command[0]);
    return 127;
}

static _Noreturn void signals(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    say("bench ready\n");
    for (;;)
        if (sigwaitinfo(&set, NULL) == SIGUSR1)
            say("bench %lld\n", now());
}

struct shared {
    atomic_int waiting;
    pid_t pids[];
};

// A child whose parent has ended already: the manager's from now on. It ends when the gate does.
static int orphan(struct shared *shared, int i, int gate[2]) {
    pid_t middle = fork();
    if (middle == 0) {
        pid_t pid = fork();
        if (pid == 0) {
            char c;
            close(gate[1]);
            atomic_fetch_add(&shared->waiting, 1);
            _exit(read(gate[0], &c, 1) != 0);
        }
        shared->pids[i] = pid;
        _exit(pid < 0);
    }
    int status = 1;
    return middle > 0 && waitpid(middle, &status, 0) == middle && status == 0;
}

static int orphans(void) {
    const char *asked = getenv("ORPHANS");
    int count = asked ? atoi(asked) : 0, gate[2];
    if (count < 1 || count > MOST_ORPHANS || pipe(gate) != 0)
        return 1;
    struct shared *shared = mmap(NULL, sizeof *shared + count * sizeof(pid_t), PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    for (int i = 0; i < count; i++)
        if (!orphan(shared, i, gate))
            return 1;
    while (atomic_load(&shared->waiting) < count)
        nap(1000000);
    // All of them sleep by then, and so does the manager.
    nap(20000000);
    prctl(PR_SET_TIMERSLACK, 1);
    long long began = now();
    close(gate[1]);
    // One that has ended and is not reaped is still there to be signalled.
    for (int i = 0; i < count; i++)
        while (kill(shared->pids[i], 0) == 0)
            nap(20000);
    say("bench %lld\n", now() - began);
    return 0;
}

static _Noreturn void leaves(void) {
    const char *asked = getenv("ORPHANS");
    int count = asked ? atoi(asked) : 0, number;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    while (sigwait(&set, &number) == 0)
        for (int i = 0; i < count; i++) {
            pid_t middle = fork();
            if (middle == 0) {
                // One that ends after its parent.
                if (fork() == 0)
                    nap(1000000);
                _exit(0);
            }
            waitpid(middle, NULL, 0);
        }
    _exit(1);
}

int main(int argc, char **argv) {
    long long main_at = now();
    const char *mode = getenv("BENCH"), *began = getenv("BENCH_BEGAN");
    if (argc > 2 && strcmp(argv[1], "at") == 0)
        return at(argv + 2);
    if (mode && began && strcmp(mode, "start") == 0) {
        say("bench %lld\n", main_at - atoll(began));
        return 0;
    }
    if (mode && strcmp(mode, "signal") == 0)
        signals();
    if (mode && strcmp(mode, "orphans") == 0)
        return orphans();
    if (mode && strcmp(mode, "leave") == 0)
        leaves();
    if (mode && strcmp(mode, "idle") == 0)
        for (;;)
            pause();
    return 64;
}
