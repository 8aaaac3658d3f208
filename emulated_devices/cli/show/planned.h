/* planned.h -- topics of `orrery show` that take a plan: the options of `orrery plan`, and --svg FILE and --page FILE.
 * plan.c and step.c call these functions. */
#ifndef ORRERY_SHOW_PLANNED_H
#define ORRERY_SHOW_PLANNED_H

#include "emulated_devices/cli/train/train.h"
#include "emulated_devices/run/run.h"

struct planned {
    struct train_options options;       /* those of `orrery plan` */
    const char *svg, *page;             /* also draw to these files; NULL: no */
};

/**
 * Read the words after the topic.  Without a model it is `tiny`, without any axis --dp 4.
 * @param name_flag  the flag that a first word without dashes belongs to; NULL: there is no such word.
 * @return as train_parse; call train_options_free afterwards, also after a failure.
 */
enum error_code planned_parse(struct planned *, const struct run_kind *, const char *name_flag, int argc, char **argv,
                              struct error *);

/** Run a step without numbers, and write the page that --page names.  In step.c.
 *  @return OK; ERR_USAGE for more devices than can be shown; ERR_FILE or ERR_MEMORY; or why the step cannot run. */
enum error_code planned_page(const struct planned *, struct error *);

#endif
