/* published.h -- `orrery bench published`: what papers printed, beside what this program computes for the same.
 *
 * A section is a table or figure of a paper.  It says where its numbers are from and what its constants were calibrated
 * on; rows that something was calibrated on are marked, and are no test of it.
 */
#ifndef ORRERY_BENCH_PUBLISHED_H
#define ORRERY_BENCH_PUBLISHED_H

#include "emulated_devices/plan/megatron.h"
#include "ref/io/table.h"
#include <cjson/cJSON.h>

struct published {
    const char *folder;                 /* of the measured steps: golden/published */
    const char *measured;               /* a file of one's own, or NULL */
    bool every;                         /* print every row, also of long sections */
    bool quiet;                         /* JSON only */
    cJSON *sections;                    /* NULL: none wanted */

    /* Of the section in work. */
    cJSON *rows;
    struct table table;
    int count;                          /* rows so far */
    bool brief;                         /* no rows are printed */
    double sum, most, *error;           /* [room] of each row */
    int room;
};

/** Begin a section.  @param brief  its rows are printed only if every one is wanted.  @param calibrated  on what, or
 *  "nothing". */
void published_section(struct published *, const char *title, const char *source, const char *calibrated,
                       const char *unit, bool brief);

/** A row: what, the published number, ours.  @param digits  printed after the point. */
void published_row(struct published *, const char *what, double published, double ours, int digits);

/** Print what the section's rows amount to. */
void published_end(struct published *);

/** The sections. */
enum error_code published_zero_bubble(struct published *, struct error *);
enum error_code published_memory(struct published *, struct error *);
enum error_code published_steps(struct published *, struct error *);
enum error_code published_orders(struct published *, struct error *);
enum error_code published_llama(struct published *, struct error *);

/* ---- measured steps (published_measured.c) ----------------------------------------------------------------------- */

/* One line of a file in golden/published: sizes, and the numbers measured. */
enum { MEASURED_NUMBERS = 2 };
struct measured { struct megatron step; double number[MEASURED_NUMBERS]; };
struct measured_list { struct measured *row; int count; };

/**
 * Read a file of measured steps: a step on each line, as megatron.h has it; blanks or commas between; lines that do not
 * begin with a digit are skipped.  A number more at a line's beginning is vTrain's number of parameters.
 * @param chunked  a line says how many chunks a stage has.
 * @return OK, or the error of a file or a line; the list is empty then.
 */
enum error_code measured_read(struct measured_list *, const char *path, bool chunked, int numbers, struct error *);
void measured_free(struct measured_list *);

/* ---- calibrating (published_calibrate.c) ------------------------------------------------------------------------- */

/** The cluster on which a file of vTrain was measured, and how its layers were recomputed. */
struct measured_on { const char *file, *cluster; int64_t card_rate; enum megatron_recompute recompute; };
extern const struct measured_on vtrain_node, vtrain_cluster;
enum error_code measured_cluster(struct cluster *, const struct measured_on *, struct error *);

/** Search for the constants of a cluster file that fit the measured steps best; print them beside those in force. */
enum error_code published_calibrate(const struct measured_on *, const char *folder, struct error *);

#endif
