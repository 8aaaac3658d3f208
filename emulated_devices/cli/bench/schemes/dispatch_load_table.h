/* dispatch_load_table.h -- how even devices' work is on an uneven load (bench/schemes/dispatch_load.h), as a table.
 * dispatch.c calls these functions. */
#ifndef ORRERY_BENCH_DISPATCH_LOAD_TABLE_H
#define ORRERY_BENCH_DISPATCH_LOAD_TABLE_H

#include "emulated_devices/bench/schemes/dispatch_load.h"
#include <cjson/cJSON.h>

/** Print the rows.  @return ERR_CHECK if copies do not make the work more even. */
enum error_code dispatch_load_print(const struct load_row row[LOAD_ROWS], struct error *);

/** The rows as an array of the object. */
void dispatch_load_json(const struct load_row row[LOAD_ROWS], cJSON *object);

#endif
