/* live.h -- the page of a run that goes on, for a browser on this machine: `orrery train --live PORT`.
 *
 * A thread of rank 0's process answers; it never calls MPI, and the run only hands it texts.  It listens on 127.0.0.1
 * alone.  Each request must be a GET for a path that begins with the run's token, with a Host of this machine, so that
 * no other page and no other user can read the run.  run/session.c calls these functions on rank 0.
 */
#ifndef ORRERY_RUN_LIVE_H
#define ORRERY_RUN_LIVE_H

#include "ref/error.h"
#include <stddef.h>

struct live;

/* No port; bytes of a request at most, and of an address. */
enum { LIVE_OFF = -1, LIVE_REQUEST = 4096, LIVE_URL = 96 };

/** Check that a port can be listened on.  @return OK, or ERR_FILE in one line. */
enum error_code live_probe(int port, struct error *);

/**
 * Listen, and answer from now on.
 * @param port      0: a free one.
 * @param page      the page without data; the function keeps a copy.
 * @param[out] live  for live_close; NULL on failure.
 * @return OK, ERR_FILE or ERR_MEMORY.
 */
enum error_code live_open(struct live **live, int port, const char *page, struct error *);

/** The address to open: "http://127.0.0.1:8000/TOKEN/". */
const char *live_url(const struct live *);

/** There is another film.  @param data  as page_data gives it, owned from now on; NULL: nothing happens. */
void live_show(struct live *, char *data);

/** A step has ended with this loss. */
void live_loss(struct live *, double loss);

/** The run ends: a browser that has asked lately may take what it has not seen, for two seconds at most; then nobody
 *  listens.  NULL is allowed. */
void live_close(struct live *);

#endif
