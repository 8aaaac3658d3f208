/* holdings.h -- which device of a plan has which part of the model and the batch, for `orrery show plan`.
 *
 * cli/show/plan.c opens a trainer for each device without numbers, notes what it has, and draws.  Only holdings_svg
 * can fail, with ERR_FILE.
 */
#ifndef ORRERY_DRAW_HOLDINGS_H
#define ORRERY_DRAW_HOLDINGS_H

#include "emulated_devices/model/trainer.h"
#include <stdio.h>

enum { HOLDINGS_DEVICES = 64, HOLDINGS_TEXT = 48 };

/* A holding is the device's part of the model and batch, in words. */
struct holding {
    char place[HOLDINGS_TEXT];          /* "dp=1 tp=0" */
    char layers[HOLDINGS_TEXT];         /* "0-3, loss" */
    /* These are ranges, too; experts: "" without a mixture. */
    char heads[HOLDINGS_TEXT], sequences[HOLDINGS_TEXT], tokens[HOLDINGS_TEXT], experts[HOLDINGS_TEXT];
    int stage;                          /* along pp: the row of the picture */
    int64_t parameters;                 /* numbers, before any sharing over dp */
};

/** Note what this device has.  Local; the trainer is open. */
void holding_note(struct holding *, struct trainer *);

/* The plan and [devices] what each has, for a picture. */
struct holdings { const struct plan *plan; const struct holding *of; };

/** A device's parts in which devices differ, as words: "layers 0-3; heads 4-7". */
void holding_text(const struct holdings *, int device, char *text, size_t size);

/** A table of all devices; columns in which all of them are equal are said in a line instead. */
void holdings_draw(FILE *, const struct holdings *);

/** Boxes: a row for each stage of the pipeline.  @param holdings  a struct holdings. */
enum error_code holdings_svg(FILE *, const void *holdings, struct error *);

#endif
