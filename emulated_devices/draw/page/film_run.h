/* film_run.h -- the film of a run or a plan: what devices' traces have, with what each device holds.
 *
 * Each device makes its part; rank 0 takes all parts and joins the two ends of each message.  run/session.c and
 * run/page.c call these functions.
 */
#ifndef ORRERY_DRAW_PAGE_FILM_RUN_H
#define ORRERY_DRAW_PAGE_FILM_RUN_H

#include "emulated_devices/draw/page/film.h"
#include "emulated_devices/model/trainer.h"

enum { FILM_RUN_DEVICES = 256 };        /* of the film of a run or a plan: more have no room on a page */

/* One end of a message, as one device's trace has it. */
struct film_flow { int64_t flow, start, end, bytes; int device, kind; bool sends; };

struct film_run {
    struct film film;                   /* grows part by part */
    struct film_flow *flow;             /* [flows] ends of messages, until film_run_end joins them */
    int flows, room;                    /* ends so far, and for how many there is memory */
    int cut;                            /* devices whose trace had no room for all */
};

/**
 * This device's part so far: what its trace has, and what it holds.  Local.
 * @param mark   [marks] virtual times at which its steps ended.
 * @return a JSON object, for cJSON_Delete; NULL without memory.
 */
cJSON *film_part(struct trainer *, const struct trace *, const int64_t mark[], int marks);

/** Begin the film of a plan's run.  @param kind  "run" or "plan".  @param title  the command. */
void film_run_open(struct film_run *, const char *kind, const char *title, const struct mesh *);
void film_run_close(struct film_run *);

/** Add a device's part, by film_part.  @return OK; ERR_FORMAT, ERR_MEMORY. */
enum error_code film_run_take(struct film_run *, const cJSON *part, struct error *);

/** All parts are there: join messages, and say what is missing. */
void film_run_end(struct film_run *);

/**
 * Bring every device's part to rank 0's film.  Collective over all devices.
 * @param part  this device's; NULL: it had no memory.
 * @param run   rank 0's, which film_run_end has ended on return; not read elsewhere.
 * @return OK, or the same error on every device: ERR_MEMORY, ERR_COMM.
 */
enum error_code film_run_gather(struct comm *, const cJSON *part, struct film_run *run, struct error *);

#endif
