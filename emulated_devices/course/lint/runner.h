/* runner.h -- what the parts of a run share (run.h): evaluate.c for expressions, execute.c for statements, unknown.c
 * for what is unknown, communicate.c for calls.  These four files include this one. */
#ifndef ORRERY_LINT_RUNNER_H
#define ORRERY_LINT_RUNNER_H

#include "emulated_devices/course/lint/run.h"

enum { RUN_STEPS = 200000, RUN_VARIABLES = 2048, RUN_DEPTH = 40, RUN_NESTED = 400, RUN_MEMORY = 32 << 20 };

struct variable { int name, type, stars; struct cell *cell; };

struct runner {
    struct lint_case *of;                                /**< Case that is examined. */
    const struct program *program;                       /**< Program of the student's file. */
    struct trace *trace;                                 /**< Trace of this device, written here. */
    struct lint_memory pool;                             /**< Memory of the run. */
    int device, steps, depth, nested, splits, loop_end;  /* loop_end: of the steps of a loop; 0: in none */
    struct variable variable[RUN_VARIABLES];             /**< Variables now in use, [variables]. */
    int variables, frame, global_count, given;  /* given: behind the parameters of the function that is run */
    int made[GROUPS_MOST], mades;       /* groups that this device has made */
    bool has_lost;                      /* the run has ended: nothing more is written */
    struct value result;                /* of `return` */
};

/* How a statement ends.  LOST: it may have left a loop or a function, or not. */
enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE, FLOW_RETURN, FLOW_LOST };

/* Where a value is. */
struct place { struct cell *cell, *base; int64_t index; };

/** End the trace here: why is a text that "%s" may have the name in. */
void run_lose(struct runner *, int line, const char *why, int name);

struct value run_evaluate(struct runner *, int node);
struct place run_place(struct runner *, int node);
struct variable *run_variable(struct runner *, int name);
struct cell *run_declare(struct runner *, int name, int type, int stars);
/** The cell that a pointer points to; NULL: unknown. */
struct cell *run_target(struct runner *, struct value);
/** Store a value; a struct is copied. */
void run_store(struct runner *, struct cell *, struct value, int type, int stars);
enum flow run_statement(struct runner *, int node);
/** Call a function of the file.  arguments: a chain of items; their values are computed here. */
struct value run_function(struct runner *, const struct function *, int call);
/** Call what is not in the file. */
struct value run_outside(struct runner *, int call, int name);
/** 1: true; 0: false; -1: unknown, with the spread. */
int run_truth(struct value, enum spread *);

/** Whether something in a tree sends, receives or calls what does. */
bool run_talks(const struct lint_case *, int node);
/** Whether something in a tree leaves it: return, break, continue, goto. */
bool run_leaves(const struct program *, int node);
/** Whether a tree ends the program: exit, abort. */
bool run_ends(const struct program *, int node);
/** Forget all variables that something in a tree writes: what they have now hangs on a condition of this spread. */
void run_forget(struct runner *, int node, enum spread);

/* ---- calls ------------------------------------------------------------------------------------------------------- */

enum action {
    ACTION_SEND, ACTION_RECEIVE, ACTION_BOTH, ACTION_WAIT, ACTION_WAIT_ALL, ACTION_COLLECTIVE, ACTION_GROUP,
    ACTION_SPLIT, ACTION_COPY_GROUP,
    /* these say nothing to others */
    ACTION_BEGIN, ACTION_RANK, ACTION_SIZE, ACTION_MOD, ACTION_BLOCK, ACTION_LENGTH, ACTION_START, ACTION_BYTES,
    ACTION_ALLOCATE, ACTION_ZEROS, ACTION_FILL, ACTION_COPY, ACTION_NOTHING, ACTION_OK, ACTION_END, ACTION_MINIMUM,
    ACTION_MAXIMUM, ACTION_ABSOLUTE,
};

/* A call does this; which argument is what, counted from 1; 0: none. */
struct call_rule {
    const char *name;                   /**< Name of the function. */
    int arguments;                      /* so many; 0: any */
    enum action action;                 /**< Effect of the call. */
    unsigned char group, data, count, type, peer, tag, root, reduction, out, handle;
    unsigned char in, in_count, in_type, in_peer, in_tag;        /* of BOTH: the receiving side */
    bool waits, is_mpi;                 /* it returns when the message is complete; a longer receive is right */
    bool spreads;                       /* what it writes is the same on all devices */
};

/** The first rule of a name, or NULL; those of one name stand together. */
const struct call_rule *call_rule_find(const char *name);
/** The rule for a call with so many arguments, or NULL. */
const struct call_rule *call_rule_for(const struct call_rule *first, int arguments);
/** Whether a call of this rule must be matched by others. */
static inline bool call_rule_talks(const struct call_rule *rule) { return rule->action <= ACTION_COPY_GROUP; }
/** The bytes of an element of a type by its name; 0: unknown. */
int64_t call_type_size(const char *name);

/** Make a cell a group: its rank, its size, and the device behind it. */
void run_give_group(struct runner *, struct cell *, int group);
/** The group that a value stands for; UNKNOWN. */
int run_group(struct runner *, struct value);

#endif
