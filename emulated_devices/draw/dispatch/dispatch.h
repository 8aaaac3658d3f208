/* dispatch.h -- which token is on which device after each hop on the way to its experts; shared by the files of
 * `orrery show dispatch NAME`.
 *
 * dispatch.c runs the passes, lets all devices record, and draws on rank 0. Letters and symbols limit the
 * drawing to 16 devices with 16 tokens each.  cli/show/dispatch.c calls these functions.
 */
#ifndef ORRERY_DRAW_DISPATCH_H
#define ORRERY_DRAW_DISPATCH_H

#include "emulated_devices/draw/picture_files.h"
#include "emulated_devices/draw/record.h"
#include "emulated_devices/verify/cases/experts.h"

enum { SHOW_DISPATCH_DEVICES = 16, SHOW_DISPATCH_TOKENS = 16, SHOW_DISPATCH_EXPERTS = 64 };

/* Kinds of events.  Sends of a hop: pairs of a device and a token; computed: pairs of an expert and a token. */
enum { DISPATCH_SENDS, DISPATCH_COMPUTED = EXPERT_HOPS };

/* A token is one number of a record. */
static inline int32_t token_number(int device, int64_t t) { return (int32_t)(device * SHOW_DISPATCH_TOKENS + t); }

struct dispatch_outcome {
    uint64_t messages, bytes;           /* of all passes */
    bool as_cost, right;                /* these equal the formulas; all results are those of one device */
};

struct dispatch_trace {
    const struct expert_layer *layer;   /* of device 0 */
    int P;                              /* devices */
    struct record record[SHOW_DISPATCH_DEVICES]; /* of each device: rows that hops send and that experts compute */
    struct dispatch_outcome outcome[SHOW_DISPATCH_DEVICES];     /* of each device */
};

/** Record where each token goes, by sending its number instead of its row.  Collective; call it after the passes.
 *  @return OK, ERR_MEMORY or ERR_COMM. */
enum error_code dispatch_record(const struct expert_layer *, struct record *, struct error *);

/* This says which call is shown. */
struct dispatch_shown {
    const char *name;                   /* of a scheme */
    int devices, etp;                   /* that share the experts; slices of each expert */
    int experts, tokens, choices;       /* 0: two for each device; of each device; experts of each token */
    int node;                           /* devices of a node; 0: as the usual cluster says */
    struct picture_files files;         /* also draw to these */
};

/** Set the usual number of experts, and check the shape.  @return OK or ERR_USAGE. */
enum error_code dispatch_shown_check(struct dispatch_shown *, struct error *);

/** Be one device: run the passes, and on rank 0 draw where each token went.  Collective over all devices.
 *  @param shown  a struct dispatch_shown, checked.  @return as show_dispatch_draw, or why a pass cannot run. */
enum error_code dispatch_show(struct comm *, const void *shown, struct error *);

/** Draw to stdout in 80 columns, and to files.  @return OK, ERR_FILE, or ERR_CHECK if a choice
 *  was not computed once, a result is wrong, or messages differ from the formulas. */
enum error_code show_dispatch_draw(const struct dispatch_trace *, const struct picture_files *, struct error *);

#endif
