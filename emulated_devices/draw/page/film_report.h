/* film_report.h -- the film of a document that --json has written, or of a log.  cli/page.c calls film_of_report. */
#ifndef ORRERY_DRAW_PAGE_FILM_REPORT_H
#define ORRERY_DRAW_PAGE_FILM_REPORT_H

#include "emulated_devices/draw/page/film.h"

/**
 * The film in a document of --film; or of a document without a film what its profile has, which a note says.
 * @param root   as run_read gives it; or a film itself.
 * @param where  names the document in messages.
 * @param[out] film  for film_close, also after an error.
 * @return OK; ERR_FORMAT: the document is of another version, or has neither film nor profile; ERR_MEMORY.
 */
enum error_code film_of_report(struct film *film, const cJSON *root, const char *where, struct error *);

#endif
