/* published_summary.h -- what all tables of `orrery bench published` amount to: as a table, as JSON and as a picture.
 * published.c calls these functions. */
#ifndef ORRERY_BENCH_PUBLISHED_SUMMARY_H
#define ORRERY_BENCH_PUBLISHED_SUMMARY_H

#include "emulated_devices/bench/claims/claims.h"
#include <cjson/cJSON.h>

enum { SUMMARY_FILES = 32 };

/* The numbers of one file. */
struct summary_file {
    char name[64];                      /* of the table's file */
    enum summary_kind { SUMMARY_OTHER, SUMMARY_SPEED, SUMMARY_MEMORY, SUMMARY_KINDS } kind; /* what its rows are of */
    struct claims_errors held_out, fitted; /* errors of tests, and of fits */
    int uncounted, pairs, ordered;      /* rows left out, pairs, and pairs in the published order */
};

struct predicted_point;

/* All files so far, and the points of the picture. */
struct published_summary {
    struct summary_file file[SUMMARY_FILES]; /* one for each table */
    int files;                          /* entries of `file` */
    struct predicted_point *point[SUMMARY_KINDS];       /* [points]; owned */
    int points[SUMMARY_KINDS], room[SUMMARY_KINDS]; /* points of each panel, and room for so many */
};

/** Add computed claims.  @return OK or ERR_MEMORY. */
enum error_code summary_add(struct published_summary *, const struct claims *, struct error *);

/** Print a line for each file, and lines for speeds, memory and pairs of all. */
void summary_print(const struct published_summary *);

/** Add the same to a document, as an array of objects. */
void summary_json(const struct published_summary *, cJSON *root);

/** Draw all planned rows.  @return as svg_file. */
enum error_code summary_draw(const struct published_summary *, const char *path, struct error *);

void summary_free(struct published_summary *);

#endif
