/* run.h -- a function of a text, run for one device with numbers as far as they are known, and what it would send.
 *
 * A *cell* is a variable, an element or a field.  What has arrived in a message, or lies in an array that was given, is
 * unknown, and so is what is made of it.  An unknown value has a *spread*: whether all devices have the same one.
 * lint.c starts a run for each device, match.c holds the traces against each other.
 */
#ifndef ORRERY_LINT_RUN_H
#define ORRERY_LINT_RUN_H

#include "emulated_devices/course/lint/parse.h"

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* Who has the same unknown value: SAME: all devices; ASSUMED: a field of what was given, which all have alike if it
 * bounds a loop; OWN: each device may have another. */
enum spread { SPREAD_SAME, SPREAD_ASSUMED, SPREAD_OWN };

enum value_kind { VALUE_UNKNOWN, VALUE_NUMBER, VALUE_SYMBOL, VALUE_POINTER, VALUE_STRUCT, VALUE_MESSAGE, VALUE_GROUP };

/* number: of a NUMBER; the name of a SYMBOL (a constant of a header); which MESSAGE or GROUP; of a POINTER the index
 * in an array, or NO_INDEX: it points to the cell itself. */
struct value { enum value_kind kind; enum spread spread; int64_t number; struct cell *cell; };
#define NO_INDEX INT64_MIN

/* A part of a cell that was never written has this. */
enum fill { FILL_OWN, FILL_SAME, FILL_ZERO, FILL_GIVEN };      /* GIVEN: a struct of the caller */

struct cell {
    struct value value;                 /**< Value of the cell, if `is_set`. */
    bool is_set, is_array;
    enum fill fill;                     /**< Value of parts that were never written. */
    int group;                          /* of a struct that stands for a group, or an exchange of it: number + 1 */
    int64_t key;                        /* of its parent: an index, or a name */
    struct cell *first, *next;          /* parts; the next part of its parent */
};

/** A new cell whose parts are filled so. */
struct cell *cell_make(struct lint_memory *, enum fill);
/** A part, which is made when it is first asked for. */
struct cell *cell_part(struct lint_memory *, struct cell *, int64_t key);
/** The value of a cell now. */
struct value cell_value(const struct cell *);
/** Whether two unknown values make one that all have alike. */
enum spread spread_of(struct value, struct value);
struct value value_number(int64_t number);
struct value value_unknown(enum spread);
/** Copy a struct with all its parts, to a limited depth. */
void cell_copy(struct lint_memory *, struct cell *to, const struct cell *from);
/** Forget what a cell and its parts have: each device may now have something else, or, if SAME, all the same. */
void cell_forget(struct cell *, enum spread);
/** Forget also what the pointers in it point to, to a limited depth. */
void cell_forget_all(struct cell *, enum spread);

/* ---- traces ------------------------------------------------------------------------------------------------------ */

enum event_kind { EVENT_SEND, EVENT_RECEIVE, EVENT_WAIT, EVENT_COLLECTIVE };

enum { TAG_ANY = -3, PEER_ANY = -3, PEER_NONE = -2, UNKNOWN = -1 };

/* One act of a device that others must match.  Numbers are UNKNOWN, names -1, where nothing is known. */
struct event {
    enum event_kind kind;               /**< Kind of act: send, receive, wait or collective. */
    int line, call;                     /* call: the name of what was called */
    int group, peer;                    /* peer: a device, not a member */
    int message;                        /* of a SEND, RECEIVE, a WAIT; of a COLLECTIVE that does not wait */
    int tag, type, reduction;           /* type, reduction: names */
    int64_t bytes, count, root, elements;  /* bytes, elements: of a message, each UNKNOWN or not */
    bool is_strict, takes_less;         /* the sizes of both sides must be equal; a longer receive is right, too */
};

enum { DEVICES_MOST = 8, GROUPS_MOST = 64, EVENTS_MOST = 4000, SPLITS_MOST = 16 };

/* Devices that call together: a list, and which of the groups with this list it is. */
struct lint_group { int size, member[DEVICES_MOST], ordinal; };

/* One device would do this. */
struct trace {
    struct event *event;                /**< Events of the device, [count], in order. */
    int count, room, messages;
    bool is_lost;                       /* from here on nothing is known */
    bool is_lenient;                    /* a message was waited for of which it is not known which one it is */
    bool at_split;                      /* it ends at a split whose groups are not known yet */
    int lost_line;                      /* in which line, and why: a text without variables */
    const char *lost_why;               /**< Reason why nothing is known after `lost_line`. */
    int lost_name;                      /* a name for it, or -1 */
};

/* A division of a group: what each device has said, and where it belongs then. */
struct split { int parent[DEVICES_MOST], group[DEVICES_MOST]; int64_t color[DEVICES_MOST], key[DEVICES_MOST]; };

/* An early finding of one device, which needs no other device. */
struct early { const char *kind, *why; int line, call, device; int64_t number; };

/* One run on so many devices. */
struct lint_case {
    const struct program *program;      /**< Text that is run. */
    const struct call_rule *const *rule;        /* [names]: what a call of this name does, or NULL */
    const bool *talks;                  /* [functions] whether it, or one that it calls, sends or receives */
    bool is_lesson;                     /* its calls are those of tutorials/course.h */
    int size;                           /**< Number of devices. */
    int64_t sample;                     /* which numbers parameters have */
    bool choice;                        /* how conditions go that are unknown and the same on all devices */
    struct lint_group group[GROUPS_MOST]; /**< Groups that are known, [groups]. */
    int groups;                         /**< Entries of `group`. */
    struct split split[SPLITS_MOST];    /**< Divisions of groups that are known, [splits]. */
    int splits;                         /* so many are known */
    struct trace trace[DEVICES_MOST];   /**< Trace of each device, [size]. */
    struct early early[DEVICES_MOST];   /**< Findings of single devices, [earlies]. */
    int earlies;                        /**< Entries of `early`. */
};

/** Run a function for a device, and write its trace.  Memory is given back before it returns. */
void lint_run(struct lint_case *, const struct function *, int device);

/** Whether a function is the `.run` of an algorithm whose `.refuses` refuses this case, or may. */
bool lint_refuses(struct lint_case *, const struct function *);

/** The number of a group with these members; UNKNOWN if there is no room. */
int lint_group_number(struct lint_case *, const int *member, int size, int ordinal);

#endif
