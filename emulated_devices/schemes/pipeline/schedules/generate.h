/* generate.h -- shared by the pipeline schedules' files: building a schedule, walking through it, checking it.
 *
 * A generator defines only what is computed: it begins a schedule, places the stages, puts F, B, I, W (and U) into each
 * device's list, and finishes.  schedule_finish derives the routes and inserts sends and receives, for all schedules.
 *
 * The files in schedules/ include this header, and so do schedule.c, schedule_read.c, schedule_write.c, validate.c,
 * walk.c and timing.c.  All functions are local.  Errors are ERR_PLAN for impossible sizes or lists, and ERR_MEMORY.
 */
#ifndef ORRERY_PIPELINE_GENERATE_H
#define ORRERY_PIPELINE_GENERATE_H

#include "emulated_devices/schemes/pipeline/schedule.h"

enum {
    SCHEDULE_MOST_DEVICES = 4096,
    SCHEDULE_MOST_CHUNKS = 1024,
    SCHEDULE_MOST_CELLS = 1 << 22       /* devices * chunks * micros: keeps every index in an int */
};

/** Allocate a schedule with empty lists and without stages.  On failure nothing is left to free. */
enum error_code schedule_begin(struct schedule *, const char *name, int devices, int micros, int chunks,
                               struct error *);

/** Append a computation.  A microbatch that does not exist is ignored.  So a generator that needs a multiple of P
 *  microbatches may use the next multiple; the result is still a valid schedule. */
void schedule_put(struct schedule *, int device, enum action_kind, int micro, int chunk);

/** Stage c*P + d on device d, chunk c: the pipeline passes through all devices v times. */
void place_looped(struct schedule *);
/** Stages d and 2P-1-d on device d: down the devices and back up. */
void place_v(struct schedule *);
/** Stage d (chunk 0, even microbatches) and stage P-1-d (chunk 1, odd microbatches) on device d: two pipelines in
 *  opposite directions. */
enum error_code place_bidirectional(struct schedule *, struct error *);

/** Allocate this number of routes, without stages. */
enum error_code routes_begin(struct schedule *, int routes, struct error *);

/** Make a single route, through the chunk that holds each stage. */
enum error_code only_route(struct schedule *, struct error *err);

/** The most actions of a device's list: F, I, W, U and four messages for every microbatch and chunk. */
size_t most_actions(const struct schedule *);

/** Complete a generator's schedule: without routes, add one through stage_of; insert sends as early and receives as
 *  late as possible.  On failure the schedule is freed. */
enum error_code schedule_finish(struct schedule *, struct error *);

/** The stage that an action of this device works on. */
static inline int schedule_stage(const struct schedule *schedule, int device, struct action action)
{
    return schedule->stage_of[device][action.chunk];
}

/* ---- walking through a schedule in an order in which devices could execute it ------------------------------------ */

struct walk {
    const struct schedule *s;           /* whose actions are visited, each once */
    bool blocking;                      /* a device waits in a send until the receive */
    bool updates_meet;                  /* an optimizer step waits for those of the other devices */
    /** Called for every action when it can be executed.  For a receive, `from` is the index of its send in the peer's
     *  list. */
    void (*visit)(void *context, int device, int index, int from);
    void *context;
    int *next;                          /* [devices] first action not executed; == count if a device has finished */
};

/** Walk through a schedule whose messages all follow its routes.
 *  @return OK with walk->next set (the caller frees it), or ERR_MEMORY.  next tells whether every device has
 *          finished. */
enum error_code walk_through(struct walk *walk, struct error *);

/* ---- checking --------------------------------------------------------------------------------------------------- */

/* Texts number a device's actions by index, or from 1 as one counts words in a file.  The third way also counts from
 * 1, in a file without messages, where the messages were put in. */
enum numbering { FROM_ZERO, FROM_ONE, FROM_ONE_WITHOUT_MESSAGES };

/** Validate as schedule_validate, and return the place of the error. -1: the error is not at a single device, or
 *  action. */
enum error_code schedule_validate_at(const struct schedule *, enum numbering, int *device, int *index, struct error *);

/** Who waits for whom if a send waits until its receive begins, in a schedule that is valid.
 *  @return OK: nobody, for ever; ERR_PLAN: a deadlock. */
enum error_code schedule_blocks(const struct schedule *, enum numbering, struct error *);

/* An action as text for messages: "F3 of chunk 1". */
struct action_text { char text[80]; };
struct action_text action_describe(struct action);

#endif
