/* attention.h -- what every device computes in the forward pass of attention over cut sequences; shared by the files of
 * `orrery show attention NAME`.
 *
 * The devices work on symbols: every number of a token's query, key or value of a head says so itself.  A special
 * backend reads them from the tensors that it is given, so that the drawing shows what was really computed, for any
 * scheme.  A result has two numbers: the query's symbol, and how many keys it has seen so far.
 *
 * attention_symbols.c runs the pass on the devices and then draws on rank 0. A device notes what is wrong in its
 * attention_outcome; the drawing turns the first note into ERR_CHECK.
 */
#ifndef ORRERY_DRAW_ATTENTION_H
#define ORRERY_DRAW_ATTENTION_H

#include "emulated_devices/draw/picture_files.h"
#include "emulated_devices/draw/record.h"
#include "emulated_devices/verify/cases/attention.h"

enum { SHOW_ATTENTION_DEVICES = 16, SHOW_ATTENTION_TOKENS = 64, SHOW_ATTENTION_HEADS = 64 };
enum { ATTENTION_ROUND = 1000000 };     /* picoseconds of a message, or of a computation with one block of keys */

/* A pair is a query and a key of a query head that were computed together; a record has it as a number. */
struct seen_pair { int head, query, key; };
struct seen_pair seen_pair_read(int64_t number);

/* A message has queries, keys, values or results, each of a token in a head. */
enum attention_sent { ATTENTION_QUERY, ATTENTION_KEY, ATTENTION_VALUE, ATTENTION_RESULT, ATTENTION_SENT_KINDS };
struct sent_number { int kind, token, head; };
struct sent_number sent_number_read(int64_t number);

/* The kind of an event of computing; that of a message is its sender. */
enum { ATTENTION_COMPUTED = -1 };

/* Each device has an outcome. */
struct attention_outcome {
    uint64_t messages, bytes;           /* sent by the device */
    bool as_cost;                       /* these equal the cost function */
    char wrong[120];                    /* the first thing that is; empty: nothing */
};

struct attention_trace {
    const struct attention_layer *layer;                /* that was run, of device 0 */
    struct record record[SHOW_ATTENTION_DEVICES];       /* an event for each block of keys, the pairs; and for each
                                                         * message that came, its bytes and what it had */
    struct attention_outcome outcome[SHOW_ATTENTION_DEVICES];   /* of each device */
};

/** Fill this device's queries, keys and values with symbols; from now on it computes with symbols, one round for each
 *  block of keys, and records the pairs. */
void attention_symbols_begin(struct attention_layer *, struct record *, struct attention_outcome *);

/** Check that every row of this device's output is that of its token, from all keys that it sees. */
void attention_symbols_check(const struct attention_layer *);

/* This says which attention is shown. */
struct attention_shown {
    const char *name;                   /* of a scheme */
    int devices, tokens, heads;         /* that share a sequence; of the sequence; query heads */
    struct context_split split;         /* for schemes of two dimensions */
    struct picture_files files;         /* also draw to these */
};

/** The plan of the layer that is shown.  @return as attention_layer_plan. */
enum error_code attention_shown_plan(struct plan *, const struct attention_shown *, struct error *);

/** Be one device: run the pass, and on rank 0 draw what all devices have computed.  Collective over all devices.
 *  @param shown  a struct attention_shown.  @return as show_attention_draw, or why the pass cannot run. */
enum error_code attention_show(struct comm *, const void *shown, struct error *);

/** Draw to stdout in 80 columns, and to files.  @return OK, ERR_MEMORY, ERR_FILE, or ERR_CHECK if
 *  a device is wrong, a pair was computed twice or not at all, or messages differ from the cost function. */
enum error_code show_attention_draw(const struct attention_trace *, const struct picture_files *, struct error *);

#endif
