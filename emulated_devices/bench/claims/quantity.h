/* quantity.h -- what claims are of: each quantity is computed by one function, which files name.  Files of
 * bench/claims/ define or look up quantities; cli/bench/ calls them.  Errors are those of the quantity. */
#ifndef ORRERY_CLAIMS_QUANTITY_H
#define ORRERY_CLAIMS_QUANTITY_H

#include "emulated_devices/bench/claims/claims.h"
#include "emulated_devices/schemes/pipeline/published.h"
#include "ref/io/options.h"

/** Compute one claim's `ours` from its words, and perhaps complete its text.  Local, or it starts devices. */
typedef enum error_code quantity_fn(struct claim *, const struct claims_setting *, struct error *);

struct quantity {
    const char *name, *what;            /**< as files name it; what it is, in one line */
    quantity_fn *compute;               /**< Function that computes `ours` of a claim. */
};

/** The registry; ends with { 0 }. */
extern const struct quantity quantities[];

quantity_fn quantity_bubble, quantity_zero_memory, quantity_activations, quantity_attention_ratio,
            quantity_tensor_speedup, quantity_overlap_speedup, quantity_memory_saved, quantity_offload_stride,
            quantity_offload_shared,
            quantity_planned_seconds, quantity_planned_milliseconds, quantity_gpt_milliseconds,
            quantity_planned_tokens, quantity_planned_rate, quantity_planned_utilization, quantity_planned_memory,
            quantity_planned_order, quantity_planned_packing, quantity_planned_gain, quantity_planned_goodput,
            quantity_elastic_tasks,
            quantity_save_bytes, quantity_save_hidden, quantity_save_gain;

/** Read a claim's words into a table of options, as a command reads its own. */
enum error_code claim_take(const struct claim *, const struct option *table, struct error *);

/* ---- bubble.c ---------------------------------------------------------------------------------------------------- */

/** The setting of a claim of a bubble.  @param[out] schedule  its name.  @param[out] formula  the paper's closed form
 *  is what was printed, not a schedule's time. */
enum error_code claim_bubble(const struct claim *, struct published_setting *, const char **schedule, bool *formula,
                             struct error *);

#endif
