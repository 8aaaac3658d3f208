/* attention_drawing.h -- who holds which token, and at which step each device computes each pair of a query and a key.
 *
 * attention.c fills the drawing from the records of all devices and prints text; attention_svg.c draws the same as an
 * SVG document.  Only these files call.
 */
#ifndef ORRERY_DRAW_ATTENTION_DRAWING_H
#define ORRERY_DRAW_ATTENTION_DRAWING_H

#include "emulated_devices/draw/attention/attention.h"
#include <stdio.h>

/* A panel is one picture: heads of a device that compute the same pairs at the same steps. */
struct attention_panel { int device, first, last; };

/* A drawing has the trace, and what follows from its records. */
struct attention_drawing {
    const struct attention_trace *t;    /* records and outcomes of all devices */
    int P, H, S;                        /* devices, query heads, tokens */
    int holder[SHOW_ATTENTION_TOKENS];  /* the device that has each token */
    uint16_t *step;                     /* [P][H][S][S]: from 1; 0: not computed by this device */
    int steps;                          /* of the whole pass */
    struct attention_panel panel[SHOW_ATTENTION_DEVICES * SHOW_ATTENTION_HEADS];        /* in the order of devices */
    int panels;                         /* entries of `panel` */
};

/* An event is a kind, a time, a count and so many numbers; the next one begins 3 + count later. */
static inline const int64_t *attention_after(const int64_t *event) { return event + 3 + event[2]; }
static inline const int64_t *attention_end_of(const struct record *record) { return record->number + record->used; }

/** The part [S, S] of `step` for one device and head. */
uint16_t *attention_steps_of(const struct attention_drawing *, int device, int head);

/** A device's work, in squares of half a device's mean tokens, of which those on the diagonal count half. */
double attention_work_of(const struct attention_drawing *, int device);

/** "head 0", "heads 0-3": the heads of a panel. */
void attention_heads_text(const struct attention_panel *, char *text, size_t size);

/** The panels as SVG.  @param attention_drawing  a struct attention_drawing.  @return OK or ERR_FILE. */
enum error_code attention_svg(FILE *, const void *attention_drawing, struct error *);

/** A page that shows the pass moving.  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code attention_page(const struct attention_drawing *, const char *path, struct error *);

#endif
