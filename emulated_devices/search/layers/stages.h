/* stages.h -- the least time of a stage: of any run of layers, on any number of devices, with any microbatches in
 * flight, under the memory of a device.
 *
 * Two runs of equal kinds of layers have one answer, so a model of 80 equal layers has few chains (chain.h).  A run is
 * first solved without the memory; a frontier is made only where that does not fit, and something does.
 *
 * Callers: alpa.c, pipedream.c and holmes.c of this folder.  The functions are local.
 */
#ifndef ORRERY_SEARCH_STAGES_H
#define ORRERY_SEARCH_STAGES_H

#include "emulated_devices/search/layers/chain.h"

struct stage_costs {
    const struct layer_table *table;    /* what layers take */
    uint64_t memory;                    /* of a device; 0: no limit */
    bool (*takes)(const struct strategy *);     /* which strategies; NULL: all */
    int flights;                        /* microbatches in flight are 1 to this */
    struct chain *chain;                /* [chains] that were made */
    int chains, room;                   /* entries of `chain`, and for how many there is memory */
    picoseconds *known;                 /* [sizes * flights * layers * layers] 0: not yet known; -1: nothing fits */
    bool thinned;                       /* a list of a chain had more points than it may have */
    int64_t looked;                     /* points of all chains */
};

/** @param takes  which strategies; NULL: all.  @return OK, for stage_costs_close; or ERR_MEMORY. */
enum error_code stage_costs_open(struct stage_costs *, const struct layer_table *, uint64_t memory,
                                 bool (*takes)(const struct strategy *), struct error *);
void stage_costs_close(struct stage_costs *);

/** The least time of layers from..to-1 with devices of full speed.
 *  @param size  the place of the number of devices in the table.
 *  @param[out] time  -1: nothing fits.  @return OK or ERR_MEMORY. */
enum error_code stage_least(struct stage_costs *, int from, int to, int size, int flight, picoseconds *time,
                            struct error *);

/** Write the strategies with that time, as stage_least has found them.  @return OK or ERR_MEMORY. */
enum error_code stage_trace(struct stage_costs *, int from, int to, int size, int flight, int strategy[],
                            struct error *);

#endif
