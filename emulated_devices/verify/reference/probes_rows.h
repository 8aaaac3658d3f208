/* probes_rows.h -- rows of experts that probes keep: for probes.c only.
 *
 * Local.  No function returns an error: probes->sorted_room is -1 after one.
 */
#ifndef ORRERY_PROBES_ROWS_H
#define ORRERY_PROBES_ROWS_H

#include "emulated_devices/verify/reference/probes.h"

/** Keep rows that were just computed.  @param context  the probes. */
void probes_see_sorted(void *context, const struct sorted_rows *);

/** Free all rows that are kept. */
void probes_forget_rows(struct probes *);

#endif
