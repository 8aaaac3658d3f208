/* dump_pieces.h -- what dumps share: the format of numbers; of a dump of ranks also a piece of a tensor, and a
 * mixture's rows of experts.
 *
 * dump.c, dump_ranks.c and dump_experts.c call these functions.  Errors are ERR_MEMORY and, of rows, ERR_CHECK.
 */
#ifndef ORRERY_VERIFY_DUMP_PIECES_H
#define ORRERY_VERIFY_DUMP_PIECES_H

#include "emulated_devices/verify/dump/dump_ranks.h"

/* Safetensors have no sums of 128 bits: files have them rounded once, as the optimizer reads them. */
static inline enum dtype dump_format(enum dtype dtype) { return dtype == EXACT ? F32 : dtype; }

/** A list of intervals as JSON: [[begin, count], ..]. */
cJSON *dump_intervals(const struct intervals *);

/** Add the entry of a piece, and its numbers.  Local.
 *  @param t  [count of the part], row by row; copied.  @param micro  -1: none.
 *  @param partial  becomes a field of the entry; NULL: the piece is no part of a sum.  @return OK or ERR_MEMORY. */
enum error_code dump_add_piece(struct dump_ranks *, const char *key, const struct part *, struct tensor t, int micro,
                               double times, cJSON *partial, struct error *);

/** Add the rows of experts that this device has computed in a pass.  Collective: devices tell each other the choices of
 *  their tokens.  @return OK or, on every device, ERR_MEMORY; ERR_CHECK if choices and rows are not of each other. */
enum error_code dump_ranks_experts(struct dump_ranks *, struct probes *, const char *prefix, double loss_scale,
                                   struct error *);

#endif
