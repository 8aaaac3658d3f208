/* tiers.h -- a composition of experts as SN40L serves it: whole models in a large slow memory, some in a fast one.
 *
 * A router names an expert model for each request.  Models are in DDR; the fast memory, HBM, holds some of them, and
 * the one that was used longest ago makes room.  A miss moves a whole model.  The offline optimum takes out the model
 * whose next use is farthest, which no program can know.
 *
 * A chain of operations of which each writes a tensor that the next one reads may be fused: then the n - 1 tensors in
 * between never reach HBM.
 *
 * Source  R. Prabhakar et al., "SambaNova SN40L: scaling the AI memory wall with dataflow and composition of experts",
 *         arXiv:2405.07518; optimum: L. Belady, 1966.
 *
 * tiers_claims.c and tests call these functions.  The code is pure: it counts, and no speed is claimed.
 */
#ifndef ORRERY_TIERS_H
#define ORRERY_TIERS_H

#include <stdbool.h>
#include <stdint.h>

enum { TIERS_MODELS = 64 };             /* models of a composition, at most */

struct tiers_counts { int64_t hits, misses, bytes; };   /* bytes: moved from DDR to HBM */

/** Serve requests in order.
 *  @param model  [requests] the expert of each, below TIERS_MODELS.
 *  @param room   models that HBM holds.  @param bytes  of a model.
 *  @param optimum  take out the model whose next use is farthest; else the one used longest ago. */
struct tiers_counts tiers_serve(const int *model, int64_t requests, int room, int64_t bytes, bool optimum);

/** Bytes to and from HBM of a chain of operations on tensors of one size, with weights that are read once.  Runs it
 *  tensor by tensor, and counts. */
int64_t tiers_chain(int operations, int64_t tensor, int64_t weights, bool fused);

#endif
