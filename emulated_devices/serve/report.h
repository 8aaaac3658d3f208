/* report.h -- what a run of serving tells: a few lines and a table of times, JSON, and a file of answers.
 * cli/train/serve.c calls these functions on rank 0. */
#ifndef ORRERY_SERVING_REPORT_H
#define ORRERY_SERVING_REPORT_H

#include "emulated_devices/serve/metrics.h"

struct cJSON;

struct serving_report {
    const struct serving_job *job;      /* what was asked */
    const struct serving_record *record;        /* and what came of it */
    struct serving_metrics metrics;     /* of the record */
    struct serving_target target;       /* of requests; zeros: none */
    struct verdict verdict;             /* of all answers, with a check */
    bool numbers;                       /* tokens are a model's; else there are times alone */
    const char *trace, *cluster;        /* where requests came from; whose time it is */
    const struct tokenizer *tokenizer;  /* of answers' texts; NULL: tokens are bytes */
};

/** Sum up a record.  @return OK or ERR_MEMORY. */
enum error_code serving_report_make(struct serving_report *, struct error *);

/** Print it, and add it to the document of --json. */
void serving_report_print(const struct serving_report *);

/** With proposals: print how many were made, tested and taken, beside the formula. */
void serving_proposals_print(const struct serving_job *, const struct serving_record *);

/** Write a line of JSON for each answer: its tokens, its text, when it came and why it ended.
 *  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code serving_answers_write(const struct serving_report *, const char *path, struct error *);

/** Print what a check has found, in two or three lines. */
void verdict_print(const struct verdict *, bool exact);

/** Add what a check has found to an object of JSON. */
void verdict_add_json(struct cJSON *to, const struct verdict *);

/** @return OK if every token is right; ERR_CHECK if one is wrong, or cannot be judged. */
enum error_code verdict_holds(const struct verdict *, bool exact, struct error *);

/** With a check: OK if every token is right; ERR_CHECK if one is wrong, or cannot be judged. */
enum error_code serving_verdict(const struct serving_report *, struct error *);

#endif
