/* predictor.h -- a layer behind the last that predicts one token more: a multi-token prediction module of DeepSeek-V3.
 *
 * Row i has h, the model's stream of token i behind its final norm, and the embedding e of the token that follows:
 *
 *     x = W [norm(e); norm(h)],   y = norm(block(x)),   logits of the token after the next = head(y)
 *
 * W is [D,2D]; the block is one of the model's own kind, with the position of token i.  Files have its parameters as
 * those of layer L (model.layers.61 of DeepSeek-V3): the block's, `enorm` and `hnorm`, `eh_proj`, `shared_head.norm`.
 * Embedding and head are the model's; some files have copies, `embed_tokens` and `shared_head.head`.
 *
 * One module predicts several tokens: y is the h of its own next row, whose token is the one that was predicted.
 *
 * Source  DeepSeek-AI, "DeepSeek-V3 technical report", arXiv:2412.19437, section 2.2; deepseek_nextn.py of SGLang,
 *         which takes h behind the final norm and y behind its own.  vLLM's deepseek_mtp.py takes y before that norm,
 *         and zeros in place of the first row's embedding; both change proposals alone.
 *
 * serve/proposer.c calls these functions.
 */
#ifndef ORRERY_PREDICTOR_H
#define ORRERY_PREDICTOR_H

#include "ref/model/past.h"
#include "ref/model/transformer.h"

struct weights;

/* Parameters beside the block: norms of e and h, W, and the model's final norm. */
enum predictor_param { EMBEDDING_NORM, HIDDEN_NORM, PROJECTION, MODEL_NORM, PREDICTOR_PARAMS };

struct predictor {
    struct transformer block;                   /* a model of one layer, with the embedding and the head */
    struct param_spec spec[PREDICTOR_PARAMS];   /* of `w` */
    struct tensor w[PREDICTOR_PARAMS];          /* weights beside the block */
    int64_t room;                               /* rows of the tensors below */
    struct tensor e, e_normed, h_normed, joined, x, rstd;       /* [room,D] three times, [room,2D], [room,D], [room] */
    int32_t *row;                               /* [room] 0, 1, ... */
};

/** Whether models of this family may have such a layer.  Pure. */
bool predictor_serves(const struct model_config *);

/** A module for a model, with initial weights drawn from the seed; embedding and head are then those of a model with
 *  this seed.  @return OK, ERR_PLAN or ERR_MEMORY with nothing to close. */
enum error_code predictor_open(struct predictor *, const struct model_config *, enum dtype, uint64_t seed,
                               struct error *);
void predictor_close(struct predictor *);

/** Read its weights, and the model's final norm.
 *  @return as weights_read_box; ERR_FORMAT if files have a second module, which would predict the token behind. */
enum error_code predictor_read(struct predictor *, const struct weights *, struct error *);

/** H [n,D] = the final norm of the model's stream [n,D]; both may be in the same memory.  @return OK or ERR_MEMORY. */
enum error_code predictor_norm(struct predictor *, struct tensor H, struct tensor stream, struct error *);

/**
 * Compute n more rows of a sequence, after those that are kept; then their keys and values are kept, too.
 * @param past    of `block`.
 * @param hidden  [n,D] h of each row's token.
 * @param next    int32 [n] the token that follows each.
 * @return OK with block.logits [n,V] and block.lnf [n,D], which is y; ERR_USAGE if a token is not in the vocabulary, or
 *     there is no room; ERR_MEMORY.
 */
enum error_code predictor_continue(struct predictor *, struct past *past, struct tensor hidden, const int32_t *next,
                                   int64_t n, struct error *);

#endif
