/* schedule.h -- a pipeline schedule is data: each device's list of actions, in order.
 *
 * The model is cut into stages, 0 (embedding) to stages-1 (loss).  Device d holds the stages stage_of[d][chunk], for
 * chunk = 0 .. chunks-1.  A generator fills in each device's list of actions; the validator proves that the lists can
 * be executed; one executor runs any of them.
 *
 * Two devices may hold the same stage (bidirectional pipelines), and a microbatch may skip stages (partial pipelines).
 * So every microbatch has a *route*: for each stage, the place (device and chunk) that computes it for this microbatch.
 * Most schedules have one route.  Use place_of, place_before and place_after instead of searching stage_of.
 *
 * What an executor must do:
 *   - each device executes its list in order;
 *   - SEND starts a message and does not wait.  Its buffer is in use until the message has been sent, at the latest
 *     until the end of the step.  A send may complete only with its receive (rendezvous); do not rely on eager
 *     delivery;
 *   - RECEIVE waits for its message.  Messages match by (kind, micro, stage), not by the order of sending.  It may be
 *     posted earlier (receives_ahead);
 *   - between adjacent stages of a route on one device there is no message: the tensor is copied;
 *   - copies of one stage sum their weight gradients before the optimizer's step (schedule_holders lists the copies).
 *
 * Files of schemes/, verify/, model/, cli/ and other rooms call these functions.
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

/* A device's list consists of these actions.  A generator sets kind, micro and chunk; schedule_finish adds the
 * messages and their peers. */
struct action {
    enum action_kind kind;              /* a pass, an optimizer step, a send or a receive */
    int micro;                          /* microbatch, 0 .. micros-1; for an UPDATE: the last one of its batch */
    int chunk;                          /* which of this device's stages; for a message: the sender or receiver */
    int peer;                           /* the other device, for sends and receives; else -1 */
    bool beside;                        /* a pass that begins with the pass before it, and is computed while that waits
                                         * for messages; with it its receive just before and its send after it */
};

/* Where a stage is computed.  device -1: nowhere (before the first stage, after the last one, or skipped). */
struct place { int device, chunk; };

/* schedule_begin allocates the tables, and schedule_free frees them.  model/trainer.c executes the result once a
 * step. */
struct schedule {
    char name[32];                      /* of the generator, or of the file */
    int devices, micros, chunks;        /* P, M, and v stages on each device */
    int stages;                         /* of the whole pipeline */
    int **stage_of;                     /* [devices][chunks]; -1: this chunk is not used */
    int routes;                         /* different ways of microbatches through the stages; 1: all take the same */
    struct place **route;               /* [routes][stages] */
    int *route_of;                      /* [micros] */
    struct action **actions;            /* [devices][count[device]] */
    int *count;                         /* [devices] actions of each */
    int weight_versions;                /* copies of the weights on a device: 1; 2 with updates inside the schedule */
    int update_every;                   /* microbatches of one optimizer step; == micros: one step, after the list */
    bool pairs;                         /* some pass is beside the one before it */
    bool messages_given;                /* a file has the sends and receives; false: they were put in */
    int receives_ahead;                 /* that a device posts before it comes to them: as many as are then not waited
                                         * for; 0: each is posted where it is waited for */
};

/* The arguments of a generator.  0: the schedule's default. */
struct schedule_request {
    int devices, micros, chunks;        /* P, M, v (stages on each device) */
    int update_every;                   /* microbatches between optimizer steps, if the pipeline is not drained */
    int memory_limit;                   /* for search: microbatches whose activations a device may hold */
    int64_t activation,                 /* for search: memory of a microbatch's activations, */
        kept_for_weight;                /* and of the part that W still needs after I; both 0: 1 and 1 */
    bool pairs;                         /* passes side by side */
    int skip;                           /* for partial pipelines: stages that each microbatch skips */
    int64_t forward, backward_input, backward_weight, communication;    /* picoseconds, for search; all 0: 1, 1, 1, 0 */
};

/* The registry lists these generators.  The files in schedules/ define the functions, and make.c calls each. */
struct schedule_generator {
    struct scheme head;                 /* memory: microbatches (or chunks of them) whose activations device r holds */
    const char *bubble;                 /* a closed form, for the list */
    int chunks;                         /* stages on each device, if the schedule fixes it; 0: as requested, or 1 */
    bool skips, streams, searches;      /* uses a request's skip; its update_every; its memory_limit */
    bool pairs;                         /* has passes side by side, if requested */
    /** NULL if the request can be met, else what the schedule needs, naming the value. */
    const char *(*refuses)(const struct schedule_request *);
    enum error_code (*make)(struct schedule *, const struct schedule_request *, struct error *); /**< Makes the list. */
};

SCHEME_CASTS(PIPELINE_SCHEME, schedule_generator)              /* schedule_generator_at, schedule_generator_find */

/** The generator of that name.  @return NULL with ERR_USAGE in err if there is none (suggests the most similar). */
const struct schedule_generator *schedule_generator(const char *name, struct error *);

/** Make a schedule by name.  @return OK; ERR_USAGE: no such name (suggests the most similar); ERR_PLAN: refused;
 *  ERR_MEMORY. */
enum error_code schedule_make(struct schedule *, const char *name, const struct schedule_request *, struct error *);
void schedule_free(struct schedule *);

/** Remove everything but forward passes and their messages from every list.  The result can be executed, but does not
 *  train. */
void schedule_keep_forwards(struct schedule *);

/** Prove that a schedule can be executed: every action occurs once and after what it needs, every send is received, and
 *  there is no deadlock, even if each send completes only with its receive (the device itself does not wait).
 *  @return OK or ERR_PLAN: which device, which line of its list, what was expected. */
enum error_code schedule_validate(const struct schedule *, struct error *);

/** Whether it would also run without deadlock with blocking synchronous sends. */
bool schedule_survives_blocking_sends(const struct schedule *);

/** Whether the schedule would run if optimizer steps inside the list met.  Each device would wait at its step until
 *  all devices reach their step of the same batch. */
bool schedule_updates_can_meet(const struct schedule *);

/** Whether every chunk adds its weight gradients in the order of the microbatches.  Then their sum has the same bits as
 *  1F1B's. */
bool schedule_adds_in_order(const struct schedule *);

/** The most microbatches whose activations a device holds at once: forwards begun minus backwards (or W) done, over all
 *  chunks. */
int schedule_peak(const struct schedule *, int device);

/** The peak in bytes, if a forward keeps `activation` bytes and I frees all but `kept_for_weight` of them. */
int64_t schedule_peak_memory(const struct schedule *, int device, int64_t activation, int64_t kept_for_weight);

/** Messages in the whole schedule, activations and gradients together. */
int64_t schedule_messages(const struct schedule *);

/** Where a microbatch is computed at a stage, at the stage before it on its route, and at the stage after it. */
struct place place_of(const struct schedule *, int micro, int stage);
struct place place_before(const struct schedule *, int micro, int stage);
struct place place_after(const struct schedule *, int micro, int stage);

/** The places that hold a copy of a stage, at most `most` of them.  @return how many: 1 unless bidirectional. */
int schedule_holders(const struct schedule *, int stage, struct place *holder, int most);

/* A posting says which receives of a device's list are posted: those before `at`.  `open` receives of these are not
 * waited for yet. */
struct posting { int at, open; };

/** The next receive that is posted before the device does action i: itself, or one ahead.
 *  @return its place in the list; -1: no more now. */
int posting_next(struct posting *, const struct schedule *, int device, int i);

/** is_beside: whether an action (a pass, its receive or its send) belongs to a pass that is beside the previous pass.
 *  has_beside: whether the pass after an action's pass is beside that pass. */
bool schedule_is_beside(const struct schedule *, int device, int i);
bool schedule_has_beside(const struct schedule *, int device, int i);

/** The letter of a kind of action, and its meaning as text. */
const char *action_letter(enum action_kind);
const char *action_meaning(enum action_kind);
/** Whether it is a send or a receive. */
bool action_is_message(enum action_kind);
bool action_is_receive(enum action_kind);

/** Whether a microbatch skips a stage. */
bool schedule_is_partial(const struct schedule *);

#endif
