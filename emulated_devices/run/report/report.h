/* report.h -- what a run says as it goes on and at its end: text on record->out, and JSON (docs/using/json.md).
 * run/ calls on rank 0 alone, which has the whole record. */
#ifndef ORRERY_RUN_REPORT_H
#define ORRERY_RUN_REPORT_H

#include "emulated_devices/run/run.h"

/* report.c, report_tables.c, report_end.c: text. */
void report_shape(const struct train_record *);         /* model, mesh and batch */
void report_packing(FILE *out, const struct packing *); /* how many samples there are, and what is padding */
void report_start(const struct train_record *, const struct train_data *);
void report_mesh(const struct train_record *);          /* from now on, in a run whose mesh changes */
void report_step(const struct train_record *, int64_t i);
void report_evaluation(const struct train_record *, int64_t step, double loss);         /* on held-out text */
void report_memory(const struct train_record *);        /* the peaks of every device */
void report_traffic(const struct train_record *);       /* what every device has sent */
enum axis report_axis_of(enum traffic_kind);            /* over which a kind sends; AXIS_COUNT: over all */
void report_virtual_time(const struct train_record *);
double report_virtual_step(const struct train_record *);        /* picoseconds, of the slowest device */
double report_median(const double *seconds, int64_t steps);     /* [steps], without the first if there are others */
double report_mean_sequences(const struct train_record *);      /* of a step */
uint64_t report_budget(const struct train_options *);   /* of a device: --memory, else its cluster's; 0: no limit */
void report_copies(const struct train_record *);        /* the result of --paranoid */
void report_end(const struct train_record *);

/* report_saves.c: the saves of --save-async; nothing where there are none. */
void report_saves(const struct train_record *);
void report_saves_json(cJSON *root, const struct train_record *);

/* report_json.c: the whole report; with its steps, or without them for a log, which has them.  format: "orrery train".
 * NULL and ERR_MEMORY: no memory. */
cJSON *report_object(const struct train_record *, const char *format, bool steps, struct error *);
enum error_code report_json(const struct train_record *, const char *format, const char *path, struct error *);

/* report_check.c: the comparison with the reference. */
void report_check(const struct train_record *);
void report_check_json(const struct train_record *, cJSON *root);

#endif
