/* desk.h -- what a device of a run has for its worker; shared by serve.c and serve_requests.c.  Private to them.
 * A desk is one device's side of a run: serve.c makes it, serve_requests.c answers requests with it.  Functions that
 * end a run do not return. */
#ifndef ORRERY_COURSE_DESK_H
#define ORRERY_COURSE_DESK_H

#include "emulated_devices/comm/comm.h"
#include "emulated_devices/course/trial.h"
#include "emulated_devices/device/device.h"
#include "ref/error.h"

enum { GROUPS = 64 };

struct desk {
    struct trial *run;                          /* of which this is a device */
    struct trial_device *own;                   /* this device's part of `run` */
    struct device *device;                      /* the worker's, with its clock */
    struct comm *comm;                          /* with the other devices of the run */
    int rank, socket, groups;                   /* this device; to the worker; entries of `group` */
    struct group group[GROUPS];                 /**< Groups that the worker has made, [groups]. */
    bool in[GROUPS];                            /* whether this device is a member */
    struct exchange exchange[GROUPS];           /* the messages of the group */
    struct { bool used, sending, both; struct message message; void *data; uint64_t bytes; int peer; }
        mail[WORKER_MESSAGES];                  /* both: exchange_both receives it */
    void *block[WORKER_MESSAGES];               /* memory that the worker has allocated; NULL: a free place */
    uint64_t block_bytes[WORKER_MESSAGES];      /* size of each */
    unsigned char kept[4096];                   /* small pieces, so that the worker is woken once for an answer */
    uint64_t kept_bytes;                        /* bytes in `kept` that are not sent to the worker yet */
    bool apart, unjoined;       /* between stream_begin and stream_end; no stream_join since stream_begin */
};

/** The run ends here, by this device.  Does not return. */
void desk_end(struct desk *, enum trial_end how, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));

/** The run ends, and no device alone is wrong.  Does not return. */
void desk_end_together(struct desk *, const char *why) __attribute__((noreturn));

/** The run ends: its worker has sent what course.h cannot have made.  Does not return. */
void desk_forged(struct desk *);

/** The run ends if there is an error. */
void desk_must(struct desk *, enum error_code, const struct error *);

/** Write to the worker, read from it, answer it.  The run ends if the worker is gone. */
void desk_tell(struct desk *, const void *from, uint64_t bytes);
void desk_hear(struct desk *, void *to, uint64_t bytes);
void desk_answer(struct desk *, int64_t value, const void *payload, uint64_t bytes);

/** Do what the worker asks for, until its function has returned (serve_requests.c). */
void desk_serve(struct desk *);

#endif
