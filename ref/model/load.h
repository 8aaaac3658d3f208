/* load.h -- which experts tokens go to, whatever their router prefers: the load of a mixture.
 *
 * A load is a pure function of the layer and of a token's row in the batch.  So every device of any mesh knows the
 * choices of any token without its numbers: a plan can count rows that no router has chosen, and a training run that
 * takes the same choices sends the same bytes.  The router still weighs the experts that it is given, by its scores.
 *
 *     even      all columns of the router get equally many choices, as far as the numbers divide.  Choice i of row r
 *               has the place (r k + i) modulo the columns in a fixed order of the experts.  The experts of a token lie
 *               in k parts of the list; of a router with groups in as many groups as it keeps
 *     zipf:S    the expert of rank n = 1, 2, .. is drawn with a probability in proportion to n^-S; one that the token
 *               has already is not drawn again.  Each layer has its own order of ranks.  zipf:0: uniform
 *     FILE      choices as written by load_write, such as those that a learned router has made
 *
 * A capacity drops an expert's choices after the first ones of a sequence, in the order of rows.  A file says itself
 * which choices are dropped.
 *
 * Source  even: as debug_force_load_balance of pytorch/torchtitan, which deals experts in turn and gathers their
 *         scores, but in the order of the list; zipf:0 deals as moe_router_force_load_balancing of NVIDIA/Megatron-LM,
 *         which draws the logits
 * Called  Files of model/, run/, cli/, train/ and other rooms call these functions.
 * File    safetensors: "choices", I32 [steps, layers, rows of the batch, k], columns of the router.  A dropped choice e
 *         is -1 - e; -2^31: no choice.  Layers that are no mixture are not read.  Step s of a run takes the choices of
 *         step s modulo steps
 */
#ifndef ORRERY_LOAD_H
#define ORRERY_LOAD_H

#include "ref/error.h"
#include <stdbool.h>
#include <stdint.h>

struct model_config;

enum load_kind { LOAD_EVEN, LOAD_ZIPF, LOAD_FILE };

struct load {
    enum load_kind kind;                /* which of the arrays below are set */
    uint64_t *below;                    /* [columns + 1] of Zipf's law: the sum of the weights of the ranks before */
    int32_t *expert;                    /* [L, columns] likewise: the expert of each rank */
    int32_t *choice;                    /* [steps, L, rows, k] of a file */
    int64_t steps, L, rows;             /* dimensions of `choice` */
};

/**
 * Take a load from a word: "even", "zipf:S" or the name of a file.
 * @param rows  of the batch: B S, of parallel streams P B S.
 * @return OK, with a load for load_close; ERR_USAGE: S is no number from 0 to 10; ERR_FILE; ERR_FORMAT: the file has no
 *         choices, or they do not fit the model or the batch; ERR_MEMORY.
 */
enum error_code load_open(struct load *, const char *word, const struct model_config *, int64_t rows, struct error *);
void load_close(struct load *);

/**
 * The choices of some rows of the batch in a layer.  Pure.
 * @param load         NULL: even.
 * @param S            rows of a sequence, which has a capacity of its own.
 * @param[out] choice  [count, k]: columns of the router, or what ops.h says of those that are dropped.
 * @return OK, or ERR_MEMORY.
 */
enum error_code load_deal(const struct load *load, const struct model_config *, int64_t S, int64_t step, int64_t layer,
                          int64_t first, int64_t count, int32_t *choice, struct error *);

/**
 * How often some rows of the batch choose each column of the router in any layer, if that follows without dealing them:
 * of an even load whose choices are never dropped.  Pure.
 * @param load               NULL: even.
 * @param[in,out] of_column  [columns] the counts are added; unchanged if the result is false.
 * @return whether it follows.
 */
bool load_count(const struct load *load, const struct model_config *, int64_t first, int64_t count,
                int32_t *of_column);

/** Write choices as a file.  @param choice  [steps, L, rows, k].  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code load_write(const char *path, const struct model_config *, const int32_t *choice, int64_t steps,
                           int64_t rows, struct error *);

#endif
