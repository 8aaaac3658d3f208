/* claims_table.h -- prints claims of papers (bench/claims/claims.h) beside ours, and adds them to a document.
 * offload.c, published.c, cli/bench/schemes/attention.c and cli/bench/schemes/tensor_tables.c call these functions. */
#ifndef ORRERY_BENCH_CLAIMS_TABLE_H
#define ORRERY_BENCH_CLAIMS_TABLE_H

#include "emulated_devices/bench/claims/claims.h"
#include <cjson/cJSON.h>

/** Print a file's computed claims to the standard output: what, published, ours, error; what ours must be, if rows say
 *  so; and what the errors amount to.  @param every  also the rows of long files. */
void claims_print(const struct claims *, bool every);

/** Find a file's claims, compute and print them.  @return as claims_find and claims_compute; OK without a print if
 *  devices have failed, and setting->status says so. */
enum error_code claims_show(const char *name, const struct claims_setting *setting, struct error *);

/** As cli/train/train.h declares it, which few files of this room need besides: plans steps of claims. */
claims_plan_fn train_plan_words;

/** Add them to an array of sections. */
void claims_add(const struct claims *, cJSON *sections);

#endif
