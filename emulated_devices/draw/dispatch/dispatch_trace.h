/* dispatch_trace.h -- reads the events of `orrery show dispatch`: shared by the files that draw them.
 *
 * dispatch.c prints text; dispatch_svg.c draws an SVG document.  Only these files call.
 */
#ifndef ORRERY_DRAW_DISPATCH_TRACE_H
#define ORRERY_DRAW_DISPATCH_TRACE_H

#include "emulated_devices/draw/dispatch/dispatch.h"
#include <stdio.h>

/** The letter of a device: its tokens are a0, a1 and so on. */
static inline char dispatch_letter(int device) { return (char)('a' + device); }

/** The event of a kind in a device's record; NULL if there is none. */
const int64_t *dispatch_event(const struct record *, int kind);

/** Tokens, hops and experts as SVG.  @param dispatch_trace  a struct dispatch_trace.  @return OK or ERR_FILE. */
enum error_code dispatch_svg(FILE *, const void *dispatch_trace, struct error *);

/** A page that shows tokens moving.  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code dispatch_page(const struct dispatch_trace *, const char *path, struct error *);

#endif
