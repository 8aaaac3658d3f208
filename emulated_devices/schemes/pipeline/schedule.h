/* schedule.h -- a pipeline schedule is data: what each device does, in order.
 *
 * The model is cut into stages, 0 (embedding) to stages-1 (loss).  Device d holds the stages stage_of[d][chunk], for
 * chunk = 0 .. chunks-1.  A generator fills in each device's list of actions; the validator proves that the lists can
 * be executed; one executor runs any of them.
 *
 * A stage may be held by two devices (bidirectional pipelines), and a microbatch may leave stages out (partial ones).
 * So every microbatch has a *route*: for each stage, the place (device and chunk) that computes it for this microbatch.
 * Most schedules have one route.  Ask place_of, place_before and place_after instead of searching stage_of.
 *
 * What an executor must do:
 *   - each device performs its list in order;
 *   - SEND starts and does not wait; its buffer stays owned until the message has left, at the latest at the end of the
 *     step.  A send may wait for its receive (rendezvous): nothing may be built on eager delivery;
 *   - RECEIVE waits for its message.  Messages match by (kind, micro, stage), not by the order they were sent in;
 *   - where neighbouring stages of a route lie on one device there is no message: the tensor is handed over;
 *   - copies of one stage add their weight gradients up before the optimizer's step (schedule_holders says who).
 */
#ifndef ORRERY_SCHEDULE_H
#define ORRERY_SCHEDULE_H

#include "emulated_devices/schemes/scheme.h"
#include "ref/error.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* X(id, letter in text files and drawings, what) */
#define ACTIONS(X)                                                                          \
    X(FORWARD,            "F",  "forward of a stage")                                       \
    X(BACKWARD,           "B",  "backward for input and weights, layer by layer")           \
    X(BACKWARD_INPUT,     "I",  "backward for the stage's input; keeps what W needs")       \
    X(BACKWARD_WEIGHT,    "W",  "backward for the stage's weights; frees the microbatch")   \
    X(UPDATE,             "U",  "optimizer's step inside the schedule, after the last microbatch of a batch") \
    X(SEND_ACTIVATION,    "sa", "a stage's output to the device of the next stage")         \
    X(RECEIVE_ACTIVATION, "ra", "a stage's input from the device of the stage before")      \
    X(SEND_GRADIENT,      "sg", "the gradient of a stage's input to the device before")     \
    X(RECEIVE_GRADIENT,   "rg", "the gradient of a stage's output from the device after")

enum action_kind {
#define X(id, letter, what) id,
    ACTIONS(X)
#undef X
    ACTION_KINDS
};

struct action {
    enum action_kind kind;
    int micro;                          /* microbatch, 0 .. micros-1; of an UPDATE: the last one of its batch */
    int chunk;                          /* which of this device's stages; of a message: the one that made or needs it */
    int peer;                           /* the other device, for sends and receives; else -1 */
};

/* Where a stage is computed.  device -1: nowhere (before the first stage, after the last one, left out). */
struct place { int device, chunk; };

struct schedule {
    char name[32];
    int devices, micros, chunks;
    int stages;
    int **stage_of;                     /* [devices][chunks]; -1: this chunk is not used */
    int routes;
    struct place **route;               /* [routes][stages] */
    int *route_of;                      /* [micros] */
    struct action **actions;            /* [devices][count[device]] */
    int *count;
    int weight_versions;     /* copies of the weights a device keeps: 1, or 2 when updates happen inside the schedule */
    int update_every;                /* microbatches of one optimizer step; == micros: one step, after the whole list */
};

/* What a generator is asked for.  Zeros mean "as the schedule has it". */
struct schedule_request {
    int devices, micros, chunks;        /* P, M, v (stages on each device) */
    int update_every;           /* microbatches between optimizer steps, for schedules that do not drain the pipeline */
    int memory_limit;              /* microbatches whose activations a device may hold, for schedules found by search */
    int64_t activation,
        kept_for_weight; /* for search: memory of a microbatch's activations, and the part that W still needs
                                               after I; both 0: 1 and 1 */
    int skip;                           /* stages each microbatch leaves out, for partial pipelines */
    int64_t forward, backward_input, backward_weight, communication;    /* picoseconds, for search; all 0: 1, 1, 1, 0 */
};

struct schedule_generator {
    struct scheme head;                 /* memory: microbatches (or chunks of them) whose activations device r holds */
    const char *bubble;                 /* a closed form, for the list */
    int chunks;                     /* stages a device holds, when the schedule fixes it; 0: as requested, at least 1 */
    bool skips, streams, searches;      /* takes a request's skip; its update_every; its memory_limit */
    /** NULL if the request can be met, else what it needs, in words that name the value. */
    const char *(*refuses)(const struct schedule_request *);
    enum error_code (*make)(struct schedule *, const struct schedule_request *, struct error *);
};

SCHEME_CASTS(PIPELINE_SCHEME, schedule_generator)              /* schedule_generator_at, schedule_generator_find */

/** The generator of that name.  @return NULL and ERR_USAGE in err if there is none (the nearest is suggested). */
const struct schedule_generator *schedule_generator(const char *name, struct error *);

/** A schedule by name.  @return OK, ERR_USAGE (no such name;
 * the nearest is suggested), ERR_PLAN (refused), ERR_MEMORY. */
enum error_code schedule_make(struct schedule *, const char *name, const struct schedule_request *, struct error *);
void schedule_free(struct schedule *);

/** Leave of every list its forward passes and their messages.
 * The schedule can then be executed, but is no longer one of training. */
void schedule_keep_forwards(struct schedule *);

/** Prove that a schedule can be executed: every action once and after what it needs, every send received, and no
 *  deadlock even when each send waits (without holding up its device) for its receive.
 *  @return OK or ERR_PLAN: which device, which line of its list, what was expected. */
enum error_code schedule_validate(const struct schedule *, struct error *);

/** Would it run even if every send held up its device until the receive (a blocking synchronous send)? */
bool schedule_survives_blocking_sends(const struct schedule *);

/** Would it run if inside the schedule every device waited at its optimizer step until all others
 * stand at theirs of that batch? */
bool schedule_updates_can_meet(const struct schedule *);

/** Does every chunk add its weight gradients in the order of the microbatches?  Then the sum has
 * the same bits as 1F1B's. */
bool schedule_adds_in_order(const struct schedule *);

/** Microbatches whose activations a device holds at once, at most: forwards begun minus backwards (W parts) done, over
 *  all chunks. */
int schedule_peak(const struct schedule *, int device);

/** The same in bytes, when a forward keeps `activation` bytes and I frees all but `kept_for_weight` of them. */
int64_t schedule_peak_memory(const struct schedule *, int device, int64_t activation, int64_t kept_for_weight);

/** Messages in the whole schedule, activations and gradients together. */
int64_t schedule_messages(const struct schedule *);

/** Where a microbatch is computed at a stage, at the stage before it on its route, and at the stage after it. */
struct place place_of(const struct schedule *, int micro, int stage);
struct place place_before(const struct schedule *, int micro, int stage);
struct place place_after(const struct schedule *, int micro, int stage);

/** The places that hold a copy of a stage, at most `most` of them.  @return how many there are:
 * 1 unless bidirectional. */
int schedule_holders(const struct schedule *, int stage, struct place *holder, int most);

/** The letter of a kind of action, and what it is, in words. */
const char *action_letter(enum action_kind);
const char *action_meaning(enum action_kind);
/** A send or a receive? */
bool action_is_message(enum action_kind);

#endif
