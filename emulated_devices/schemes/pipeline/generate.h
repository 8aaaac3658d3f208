/* generate.h -- what the pipeline schedules' files share: building a schedule, walking through it, where actions are.
 *
 * A generator says only what is computed: it begins a schedule, places the stages, puts F, B, I, W (and U) into each
 * device's list, and finishes.  Finishing derives the routes and inserts sends and receives, the same way for all.
 */
#ifndef ORRERY_PIPELINE_GENERATE_H
#define ORRERY_PIPELINE_GENERATE_H

#include "emulated_devices/schemes/pipeline/schedule.h"

enum {
    SCHEDULE_MOST_DEVICES = 4096,
    SCHEDULE_MOST_CHUNKS = 1024,
    SCHEDULE_MOST_CELLS = 1 << 22       /* devices * chunks * micros: keeps every index in an int */
};

/** Memory for a schedule with empty lists and every chunk unused.  On failure nothing is left to free. */
enum error_code schedule_begin(struct schedule *, const char *name, int devices, int micros, int chunks,
                               struct error *);

/** Append a computation.  A microbatch that does not exist is passed over: so a generator that wants a multiple of P
 *  microbatches may go through the next multiple, and what remains is still a valid schedule. */
void schedule_put(struct schedule *, int device, enum action_kind, int micro, int chunk);

/** Stage c*P + d on device d, chunk c: the pipeline passes through all devices v times. */
void place_looped(struct schedule *);
/** Stages d and 2P-1-d on device d: down the devices and back up. */
void place_v(struct schedule *);
/** Stage d (chunk 0, even microbatches) and stage P-1-d (chunk 1, odd microbatches) on device d:
 * two pipelines head on. */
enum error_code place_bidirectional(struct schedule *, struct error *);

/** Routes for all microbatches, `routes` of them, at first with every stage left out. */
enum error_code routes_begin(struct schedule *, int routes, struct error *);

/** One route, through the chunk that holds each stage. */
enum error_code only_route(struct schedule *, struct error *err);

/** Room in each device's list while it is being built: F, I, W, U and four messages of every
 * microbatch at every chunk. */
size_t most_actions(const struct schedule *);

/** Complete what a generator has put: one route through stage_of if it made none; sends as early and receives as late
 *  as can be.  On failure the schedule is freed. */
enum error_code schedule_finish(struct schedule *, struct error *);

/** Stages of the model when every chunk is used once. */
static inline int schedule_stage(const struct schedule *s, int device, struct action a)
{
    return s->stage_of[device][a.chunk];
}

/* ---- walking through a schedule as the devices would ------------------------------------------------------------- */

struct walk {
    const struct schedule *s;
    bool blocking;                      /* a send waits for its receive, and its device with it */
    bool updates_meet;                  /* an optimizer step waits for those of the other devices */
    /** Called for every action when it can be performed.  For a receive, `from` is the index of its
     * send in the peer's list. */
    void (*visit)(void *context, int device, int index, int from);
    void *context;
    int *next;                          /* [devices] first action not performed; == count where a device is through */
};

/** Perform a schedule whose messages all have their places on the routes.
 *  @return OK and w->next (to be freed by the caller), or ERR_MEMORY.  Whether it got to the end, next says. */
enum error_code walk_through(struct walk *w, struct error *);

/* ---- checking --------------------------------------------------------------------------------------------------- */

/** schedule_validate, and where the fault was: -1 when it is not at one device or one action. */
enum error_code schedule_validate_at(const struct schedule *, int *device, int *index, struct error *);

/** An action in words for messages: "forward of microbatch 3, chunk 1". */
struct action_text { char text[80]; };
struct action_text action_describe(struct action);

#endif
