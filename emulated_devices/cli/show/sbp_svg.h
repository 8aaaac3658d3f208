/* sbp_svg.h -- the signatures of a graph as an SVG document.  sbp.c calls sbp_svg through svg_file. */
#ifndef ORRERY_SHOW_SBP_SVG_H
#define ORRERY_SHOW_SBP_SVG_H

#include "emulated_devices/schemes/sbp/assign.h"
#include <stdio.h>

/* A picture has a graph and the signatures that were found for it. */
struct sbp_picture { const struct sbp_graph *graph; const struct assignment *assignment; };

/** A journey as the names of its steps: "all-reduce B".  @return text. */
const char *sbp_journey_text(const struct sbp_mesh *, const struct boxing *, char *text, size_t size);

/** A row for each operation: who has which part of its operands and of its result, and what travels.
 *  @param sbp_picture  a struct sbp_picture.  @return OK or ERR_FILE. */
enum error_code sbp_svg(FILE *, const void *sbp_picture, struct error *);

#endif
