/* whole.h -- attention of a device that has all tokens of its sequences.
 *
 * whole.c defines the calls; streams.c takes all of them with WHOLE_SEQUENCES, because a stream has whole sequences
 * too.  model/run/run_attention.c calls these functions through a scheme.  No pass can fail.
 */
#ifndef ORRERY_ATTENTION_WHOLE_H
#define ORRERY_ATTENTION_WHOLE_H

#include "emulated_devices/schemes/attention/attention.h"

/* Calls of struct attention_scheme; slot 0 is the log-sum-exp, [rows, H] in the wide format.  Local. */
void whole_cut(struct intervals *tokens, const struct context_parallel *, int member);
struct tensor whole_kept(const struct context_parallel *, int slot, int64_t rows);
enum error_code whole_forward(struct attention_call *, struct error *);
enum error_code whole_backward_input(struct attention_call *, struct error *);

#define WHOLE_SEQUENCES                                                                                       \
    .cut = whole_cut, .slots = 1, .kept = whole_kept, .takes_prefix = true, .reads_input = true,              \
    .reads_output = true, .forward = whole_forward, .backward_input = whole_backward_input

#endif
