/* hops.h -- the exchanges on the way of rows to their experts and back.
 *
 * A routing's hops run one after another.  Each picks some of the rows at hand, in an order, maybe a row several times,
 * and exchanges them.  The way back runs them in reverse: rows return to where they were picked, and are added there.
 *
 * dispatch.c and announce.c run the hops, schemes make them; draw/dispatch/ reads them.  model/run/run_mixture.c calls
 * rows_trace.
 */
#ifndef ORRERY_EXPERT_HOPS_H
#define ORRERY_EXPERT_HOPS_H

#include "emulated_devices/schemes/experts/experts.h"

/** Set a hop's group and operation, and allocate its numbers of rows, all 0, and its order.  Local.
 *  @param picked  rows of the order; -1: no order.  @return OK or ERR_MEMORY; expert_routing_clear frees them. */
enum error_code hop_make(struct expert_hop *, struct group *, enum operation, int64_t picked, struct error *);

/** The rows that come by a hop. */
int64_t hop_arrives(const struct expert_hop *);

/** Send rows by one hop.  Collective over its group.
 *  @param in  [rows at hand, width].  @param[out] out  [rows that come, width].  @return OK, ERR_MEMORY or ERR_COMM. */
enum error_code hop_run(const struct expert_hop *, struct device *, struct tensor in, struct tensor out,
                        struct error *);

/** Send rows by all hops to the devices of their experts; and back, where the values of a row are added.
 *  Collective over the ep group.
 *  @param mine  [sent, width].  @param pool  [pool, width].  @return OK, ERR_MEMORY or ERR_COMM. */
enum error_code rows_spread(const struct expert_parallel *, struct tensor mine, struct tensor pool, struct error *);
enum error_code rows_collect(const struct expert_parallel *, struct tensor pool, struct tensor mine, struct error *);

/** Follow the rows that experts compute here back to their places in the batch: sets routing->row.  Uncounted, and
 *  without virtual time.  Collective over the ep group, after the scheme has announced.
 *  @param E  experts that compute.  @param own  the choices of the rows that this device sends.
 *  @param row  [own->rows] their places in the batch.
 *  @return OK, ERR_MEMORY or ERR_COMM; routing->row is then NULL. */
enum error_code rows_trace(struct expert_routing *, const struct expert_parallel *, int64_t E,
                           const struct choices *own, const int32_t *row, struct error *);

/** Enter what these send for rows of `width` numbers; there: by the hops from the first on. */
void rows_spread_cost(struct forecast *, const struct expert_parallel *, int first, enum dtype, int64_t width);
void rows_collect_cost(struct forecast *, const struct expert_parallel *, enum dtype, int64_t width);

#endif
