/* recorder.h -- what a device remembers of its collectives: always on, in a memory of fixed size.
 *
 * Each collective, and each message of a pipeline, leaves a call: when this device came to it, when the last message
 * for it arrived and from whom, and when this device left it.  Each step leaves sums: how long operations took and how
 * long they should have, how long the device was in calls, and for each sender how long its messages took.  The newest
 * calls and steps are kept.  All times are virtual.
 *
 *     head | pairs [size] | steps [steps_room] | cells [steps_room, size] | calls [calls_room]
 *
 * With a folder this memory is a file there (--record DIR), which the system keeps, whatever happens to the process.
 * So `orrery diagnose DIR` can read it while the run goes on, after its end, and after a hang or a kill.
 *
 * exchange.c, transport.c, crew.c, collectives/registry.c and train/training.c call; check/slow/ reads.  Functions
 * that record take NULL, and then do nothing.
 */
#ifndef ORRERY_RECORDER_H
#define ORRERY_RECORDER_H

#include "emulated_devices/comm/comm.h"

enum record_state { RECORD_RUNS, RECORD_ENDED, RECORD_HANGS, RECORD_STATES };

/* The first bytes of a file: RECORD_MAGIC, then RECORD_ORDER as this machine writes numbers. */
#define RECORD_MAGIC "ORRYREC1"
enum { RECORD_ORDER = 0x01020304, RECORD_VERSION = 1 };
enum { RECORD_CALLS = 1024, RECORD_STEPS = 1024, RECORD_CELLS = 1 << 14, RECORD_MOST_DEVICES = 4096 };

struct record_head {
    char magic[8];                      /* RECORD_MAGIC without its NUL */
    uint32_t order, version;            /* RECORD_ORDER; RECORD_VERSION */
    uint32_t rank, size;                /* this device, of how many */
    uint32_t calls_room, steps_room;    /* entries of both rings */
    uint64_t calls, steps;              /* finished so far; entry i is at i modulo the room */
    int64_t step;                       /* at work now, from 1; 0: none yet */
    int32_t waits_for;                  /* device whose message is waited for, or that shall receive one; -1: none */
    uint8_t waits_operation, waits_kind, waits_sending, state;  /* of that message; enum record_state */
    uint32_t waits_axes;                /* of its group */
    uint32_t open;                      /* 1: the call at `calls` has begun and not ended */
};

struct call_record {
    int64_t step;                       /* in which it was made */
    picoseconds start, arrival, end;    /* this device came; the last message arrived, or start; it left */
    int32_t peer;                       /* who sent the last message; -1: nobody */
    int32_t members;                    /* of its group */
    uint32_t axes;                      /* of its group */
    uint8_t operation, kind, unused[2]; /* enum operation, enum traffic_kind; zeros */
};

struct step_record {
    int64_t step;                       /* its number, from 1 */
    picoseconds begins, ends;           /* of this device */
    picoseconds worked, usual;          /* its operations, and the same by the cluster's rates */
    picoseconds in_calls;               /* in collectives and waits for messages of a pipeline */
    int64_t calls;                      /* so many */
};

/* Messages of one sender in a step: how long they took on ports and the way without latency, and should have. */
struct record_cell { picoseconds carried, usual; int64_t messages; };

/* Messages since the start, to and from another device. */
struct record_pair { uint64_t sent, received; };

struct recorder {
    struct record_head *head;           /* of all this memory */
    struct record_pair *pair;           /* [size] */
    struct step_record *step;           /* [steps_room] */
    struct record_cell *cell;           /* [steps_room, size] by sender */
    struct call_record *call;           /* [calls_room] */
    size_t bytes;                       /* of the memory */
    int depth;                          /* calls that are open: some collectives run others */
    struct step_record begun;           /* the step at work; worked and usual as the clock had them then */
};

/** Bytes of a recorder's memory, whose head says its rooms. */
size_t record_bytes(const struct record_head *);

/** Set the addresses of a recorder whose head is set. */
void record_place(struct recorder *);

/**
 * Begin to record.  Local.
 * @param folder  there is to be a file DIR/device-NNNNN.record; NULL: memory alone, also of processes forked later.
 * @param steps   that are to be kept; as many as there is room for in RECORD_CELLS; 0: RECORD_STEPS.
 * @return OK; ERR_FILE, ERR_MEMORY with nothing to close.
 */
enum error_code recorder_open(struct recorder *, const char *folder, int rank, int size, int steps, struct error *);

/** Stop.  A file stays, and says that the run has ended.  Of NULL or of what is not open, nothing happens. */
void recorder_close(struct recorder *);

/** Before the first device opens its file: make the folder, and remove files of an earlier run.
 *  @return OK or ERR_FILE. */
enum error_code recorder_clear(const char *folder, struct error *);

/** A step begins, and the one before ends.  @param step  its number, from 1; 0: none begins. */
void recorder_step(const struct comm *, int64_t step);

/** A collective begins or ends, on this device. */
void recorder_begins(const struct comm *, const struct group *, enum operation);
void recorder_ends(const struct comm *);

/** The device waits from now on for a message of another one, or until that has received one. */
void recorder_waits(const struct comm *, const struct exchange *, int device, bool sending);

/** The device waits no more. */
void recorder_goes_on(const struct comm *);
/** A message has been received, with its passage.  @param since  when the wait began. */
void recorder_arrived(const struct comm *, const struct exchange *, int device, const struct passage *,
                      picoseconds since);

/** A message leaves for a device. */
void recorder_sends(const struct comm *, int device);

/** The job does not go on: the limit of waiting has passed. */
void recorder_hangs(const struct comm *);

/** This device never returns: it hangs, as --disturb says.  Does not return, but in a crew that means nothing any
 *  more. */
void comm_hang(struct comm *);

#endif
