"""Says for how many seconds nobody could run on a core since it was last asked: each line of input is a question.

Usage: stalls.py CORE
"""

import os
import select
import sys
import time

# Seconds: what a timer is late on an idle machine is far below it.
TICK = 0.001


def main():
    os.sched_setaffinity(0, {int(sys.argv[1])})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        # Then what the programs here do to each other counts in part, too.
        pass
    late = 0.0
    while True:
        due = time.monotonic() + TICK
        asked = select.select([sys.stdin], [], [], 0)[0]
        if asked:
            if not sys.stdin.readline():
                return
            print(late, flush=True)
            late = 0.0
        time.sleep(TICK)
        over = time.monotonic() - due - TICK
        # Less is the timer's own.
        late += over if over > TICK else 0.0


main()
