/* page.h -- the film of a run or a plan, and the page of --page.  run/session.c and run/plan.c call these functions. */
#ifndef ORRERY_RUN_PAGE_H
#define ORRERY_RUN_PAGE_H

#include "emulated_devices/draw/page/film_run.h"
#include "emulated_devices/run/live.h"
#include "emulated_devices/run/run.h"

/** Whether the words ask for a film: --page, --film or --live. */
bool page_is_asked(const struct train_options *);

/** The command as it was typed, without words about where results go.  @return out. */
const char *page_title(const struct train_options *, char *out, size_t size);

/** Losses of all steps so far, and what the comparison has found, into a film.  Local. */
void page_add_results(struct film *, const struct train_record *);

/**
 * Bring all devices' parts to rank 0, and show the film live.  At the end of the run also write the page, and keep the
 * film in record->film for the report.
 * Collective over all devices.
 * @param part  this device's, of film_part.
 * @param live  of rank 0; NULL: nobody looks.
 * @return OK, or the same error on every device: ERR_FILE, ERR_MEMORY, ERR_COMM.
 */
enum error_code page_finish(struct comm *, const cJSON *part, struct train_record *, struct live *live, bool ends,
                            struct error *);

/** Before a plan: whether its page can be written, and has room for its devices, as far as that is known before.
 *  @return OK, ERR_FILE, ERR_USAGE. */
enum error_code page_check_plan(const struct train_options *, struct error *);

/** Film a plan's steps in this process, write the page, and keep the film in record->film.
 *  @return OK; ERR_USAGE if more devices run than a page can have; ERR_FILE, ERR_MEMORY. */
enum error_code page_of_plan(struct train_record *, struct error *);

#endif
