/* watch.h -- the output of all ranks on its way to ours, and what can be learnt from it; private to launch.c. */
#ifndef ORRERY_LAUNCH_WATCH_H
#define ORRERY_LAUNCH_WATCH_H

#include <stdbool.h>
#include <stddef.h>

struct process { long pid; int rank; char place[64]; };

enum { LINE = 4096 };

/* The standard output or error of all ranks, on its way to ours. */
struct stream {
    int from, to;                       /* from: -1 after its end */
    char line[LINE];
    size_t used;
    bool frame;                         /* between the two lines of '=' of mpiexec's report of a death */
    bool blank;                         /* an empty line is held back: such a report begins with one */
    bool middle;                        /* the line's beginning has been passed on */
};

struct watch {
    struct stream stream[2];
    struct process *process;
    int known, room;
    bool died;                          /* mpiexec has reported a death */
    char how[64];                       /* the first one died, by mpiexec */
    long lost_pid;                      /* the first process that ended without saying goodbye; 0 if there is none */
    bool orphaned;                      /* devices have ended because MPICH's process that had started them did */
    int lost_signal;                    /* what ended it, */
    double lost_when;                   /* and when; an abort: when its device had lingered */
    char said[LINE];                    /* the first line in which a device says what went wrong; shown at the end */
    int write_errno;                    /* our own output cannot be written */
    char mpi_failed[200];               /* the last line of what MPICH says when it cannot start: the cause */
    char noise[200];                    /* the first remark of mpiexec or UCX */
};

/** Pass on what has come, without what is not for the user.  At the end of the stream, from becomes -1. */
void watch_read(struct watch *, struct stream *);

#endif
