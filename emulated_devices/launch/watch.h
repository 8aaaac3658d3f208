/* watch.h -- passes on the output of all ranks, and extracts messages to the launcher from it; private to launch.c.
 * No function returns an error code. */
#ifndef ORRERY_LAUNCH_WATCH_H
#define ORRERY_LAUNCH_WATCH_H

#include <stdbool.h>
#include <stddef.h>

struct process {
    long pid;                           /* of a device, or of a program that has not begun MPI */
    int rank;                           /* as the process has announced it */
    char place[64];                     /* STARTING before MPI has started */
    char host[64];                      /* "": not told yet */
    bool reported;                      /* that it has ended */
};

enum { LINE = 4096 };

/* Where a stream is in a frame of Open MPI's mpiexec: lines between two of '-'. */
enum dashes {
    DASHES_NONE,
    DASHES_HELD,                        /* the first is held back until the next line says what the frame is about */
    DASHES_END,                         /* of processes that have ended: for this launcher */
    DASHES_OTHER                        /* for the user */
};

/* The standard output or error of all ranks, which is passed on to ours. */
struct stream {
    int from, to;                       /* from: -1 after its end */
    char line[LINE];                    /* beginning of a line whose end has not come */
    size_t used;                        /* bytes of `line` */
    bool frame;                         /* inside the two lines of '=' of mpiexec's report of a death */
    enum dashes dashes;
    bool blank;                         /* an empty line is held back, because such a report begins with one */
    bool middle;                        /* the beginning of the line has been passed on */
};

struct watch {
    struct stream stream[2];            /* output and errors */
    struct process *process;            /* [known] all that have announced themselves */
    int known, room;                    /* entries of `process`, and for how many there is memory */
    double heard;                       /* when a process last announced itself, or the job was started */
    double complained;                  /* when the launcher said that it could not start a device; 0: it has not */
    double computed;                    /* seconds of processors that the job has taken so far, */
    double computing, looked;           /* when they were last more, and when they were last looked at */
    bool silence_said;                  /* that no device has reported for long */
    bool stalled;                       /* it was ended because it did not start, */
    bool lingers;                       /* or because all devices had ended, and it had not */
    double gone;                        /* when they were seen to have ended; 0: they have not */
    long stops;                         /* the process that ends the run after its step if asked; 0: none so far */
    bool ended_well;                    /* the run has announced its end, */
    int status;                         /* with this exit status */
    bool died;                          /* mpiexec has reported a death */
    char how[64];                       /* how the first one died, from mpiexec */
    long lost_pid;                      /* the first process that ended without a last message; 0: none */
    int lost_rank;                      /* -1: not told */
    bool manager_failed;                /* Hydra's mpiexec has ended, as it has lost a proxy; that ends all devices */
    bool orphaned;                      /* devices have ended because MPICH's proxy, which started them, has ended */
    double ended;                       /* when mpiexec's end or the proxy's was noticed; 0: neither */
    int lost_signal;                    /* the signal that ended it */
    double lost_when;                   /* when it ended; for an abort: when its device had lingered */
    char said[LINE];                    /* the first error line of a device; shown at the end */
    int write_errno;                    /* if our own output cannot be written */
    char mpi_failed[200];               /* the last line of MPICH's message when it cannot start: the cause */
    char noise[200];                    /* the first message of mpiexec, ssh or UCX */
};

/** Pass on the output that has arrived, except what is not for the user.  At the end of the stream, from becomes -1. */
void watch_read(struct watch *, struct stream *);

/**
 * The hosts that have gone, by what is known: those from which no device has told its end, while others did.
 * @param[out] text  "beta, with its devices 2, 3"; "" if the devices are on one host, or all hosts have spoken.
 * @return text.
 */
const char *watch_lost_hosts(const struct watch *, char *text, size_t size);

/** Whether mpiexec has lost the proxy of a host, and all else that was reported follows from that: devices that the
 *  other proxies have killed, and messages that have broken off. */
bool watch_lost_proxy(const struct watch *);

/** The number of devices whose MPI has started. */
int watch_started(const struct watch *);

#endif
