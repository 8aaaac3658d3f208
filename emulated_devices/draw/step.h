/* step.h -- what a device holds and sends during a training step, pass by pass: for `orrery show data` and `memory`.
 *
 * A watcher of the data-parallel seam (schemes/data/data.h) notes the state after each of its calls.  A line of a
 * drawing is what happens from one pass to the next.
 *
 * cli/show/step.c watches one device of a run without numbers and draws text, SVG or a document.  A record whose
 * `failed` is set must not be drawn.
 */
#ifndef ORRERY_DRAW_STEP_H
#define ORRERY_DRAW_STEP_H

#include "emulated_devices/device/trace.h"
#include "emulated_devices/draw/holdings.h"
#include "emulated_devices/model/trainer.h"
#include <stdio.h>

enum { STEP_UNITS = 64, STEP_DEVICES = 64 };

/* A pass over a part of the model, or what follows the passes. */
enum step_pass { STEP_FORWARD, STEP_BACKWARD, STEP_WEIGHT_GRADIENTS, STEP_REDUCTIONS, STEP_UPDATE };

struct step_line {
    int part;                           /* 0: embedding, 1 .. L: blocks, L + 1: loss; -1: none */
    enum step_pass pass;                /* what the device did in the line */
    picoseconds start, end;             /* of its computing */
    uint64_t used, weights, gradients;  /* sets of units: that it uses; that are whole on the device */
    uint64_t bytes, messages;           /* sent in the meantime for weights and gradients */
    struct arena_use held;              /* when most memory was held */
};

struct step_record {
    struct data_watch watch;            /* first: the watcher finds its record */
    struct step_line *line;             /* [lines] in the order of the step */
    int lines, room;                    /* lines so far, and for how many there is memory */
    bool failed;                        /* there was no memory for a line */
    struct trace trace;                 /* of the device's clock, from which times of lines come */
    struct traffic sent;                /* so far */
    int units;                          /* of the device's part of the model; those without parameters are empty */
    uint64_t there, kept_whole_weights, kept_whole_gradients;           /* sets: with parameters; never cut */
    struct trainer *trainer;            /* that is watched */
    int64_t elements;                   /* of all its units */
    picoseconds end;                    /* of the step */
};

/** Watch a device's step.  Local; before the step, with the clock at 0. */
void step_watch(struct step_record *, struct trainer *);

/** No longer: the step is done. */
void step_watched(struct step_record *, struct trainer *);
void step_free(struct step_record *);

/* The drawings, of one device of a plan. */
struct step_drawing { const struct plan *plan; const struct step_record *record; int device; };

/** Who keeps what, and a line for each pass: which units are whole on the device, and what it sends.  80 columns. */
void step_draw_data(FILE *, const struct step_drawing *);
enum error_code step_svg_data(FILE *, const void *step_drawing, struct error *);

/** A bar for each pass: what the device holds. */
void step_draw_memory(FILE *, const struct step_drawing *);
enum error_code step_svg_memory(FILE *, const void *step_drawing, struct error *);

/** A page that shows the step of all devices moving.
 *  @param all   [devices] their records.  @param of  [devices] what each has.  @param what  "show data".
 *  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code step_page(const struct plan *, const struct step_record *all, const struct holding *of,
                          const char *what, const char *path, struct error *);

/** The passes as the table "passes" of the command's document, if one is open. */
void step_document(const struct step_drawing *);

/* Shared by the files of the drawing. */

/** "forward", "reductions". */
const char *step_pass_name(enum step_pass);

/** The plans of which a device has layers: its sections', or the plan itself.
 *  @param i  from 0 on.  @return NULL after the last. */
const struct plan *step_part(const struct step_drawing *, int i);

/** Its data scheme; "zero1, ddp" of several sections.  @return out. */
const char *step_schemes(const struct step_drawing *, char *out, size_t size);

/** "forward", "layer 3": what a line is about.  @return out. */
const char *step_name(const struct step_drawing *, const struct step_line *, char *out, size_t size);

/** A unit's name, short: "tok", "pos", "0", "end". */
const char *step_unit(const struct step_drawing *, int unit, char *out, size_t size);

#endif
