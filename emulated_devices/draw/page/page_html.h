/* page_html.h -- one file of HTML that shows films: style, script and data inside, and nothing from outside.
 *
 * run/session.c, run/plan.c, cli/page.c and commands that draw call these functions.
 */
#ifndef ORRERY_DRAW_PAGE_PAGE_HTML_H
#define ORRERY_DRAW_PAGE_PAGE_HTML_H

#include "emulated_devices/draw/page/film.h"

enum { PAGE_MOST_FILMS = 4 };

/** Names and texts of page.css and the scripts in turn, in the order in which they run; ends with NULL. */
extern const char *const page_texts[];

/**
 * The page of one film, or of several beside each other on one axis of time, with what differs in words.
 * @param[out] text  the page, for free(); NULL on failure.
 * @return OK or ERR_MEMORY.
 */
enum error_code page_html_text(char **text, size_t *bytes, struct film *const films[], int count, struct error *);

/** Write that page as a whole, or not at all.  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code page_html_write(const char *path, struct film *const films[], int count, struct error *);

/** The data of the page: { "films": [ .. ], "words": [ .. ] }, with no '<' in its text.  The script's function
 *  orrery.show(data) shows the parsed data.  @return for free(); NULL without memory. */
char *page_data(struct film *const films[], int count);

#endif
