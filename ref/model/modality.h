/* modality.h -- inputs that are not text: clips of patches, and the small encoders that turn each patch into a row of
 * the model's stream, in place of a token's embedding.  Toy modalities: patches are drawn, not read.
 *
 * An encoder is a linear layer, GELU and a linear layer: x [n,C] -> up [n,F] -> act [n,F] -> out [n,D].  Files of
 * verify/reference/, model/, schemes/modality/ and ref/model/ call these functions.
 */
#ifndef ORRERY_MODALITY_H
#define ORRERY_MODALITY_H

#include "ref/model/param.h"
#include "ref/model/observer.h"
#include "ref/optim/optimizer.h"

struct ops;

struct modality {
    const char *name;                   /* in names of parameters and in messages */
    int64_t C, F;                       /* numbers of a patch; inner width of its encoder */
    int64_t least, most;                /* patches of a clip */
};

enum { MODALITIES = 3 };
extern const struct modality modalities[MODALITIES];

/* ---- clips ------------------------------------------------------------------------------------------------------- */

/* Patches in a row of one sequence. */
struct clip {
    int modality;                       /* index in modalities[] */
    int64_t row, count;                 /* its first row in the batch, B x S; patches, a row each */
    int64_t first;                      /* the number of its first patch among all of the batch */
};

/* Clips of a batch in order of sequences, and the sum of their patches. clips_close frees the list. */
struct clips { int count; int64_t patches; struct clip *clip; };

/**
 * The clips of a step's batch: of each sample, one of each of the first `kinds` modalities at most, one after the
 * other.  A sample begins and ends with text, so no clip is cut.  Every fourth sample has none; in some steps a whole
 * modality is absent.  Pure.
 * @param only    a bit for each modality that has clips; the draws of the others are made, and left out; 0: all have.
 * @param within  [B*S] of packed samples (sample_mask.h), whose padding has no clips; NULL: a sequence is a sample.
 * @return OK, for clips_free, or ERR_MEMORY with none.
 */
enum error_code clips_of_step(struct clips *, int kinds, unsigned only, uint64_t seed, int64_t step, int64_t B,
                              int64_t S, const int32_t *within, struct error *);

/**
 * The clips that a batch of a file's samples has: the rows whose tokens are placeholders (clip_placeholder).  Pure.
 * @param ids  [B*S] of a batch that has not been marked.
 * @return OK, for clips_free, or ERR_MEMORY with none.
 */
enum error_code clips_of_tokens(struct clips *, int64_t B, int64_t S, const int32_t *ids, struct error *);
void clips_free(struct clips *);

/** The token in the place of a patch, until clips_mark; no text has it. */
static inline int32_t clip_placeholder(int modality) { return -1 - modality; }

/** The modality with this name, of so many letters; -1: none. */
int modality_find(const char *name, size_t letters);

/** Whether no sequence of a step has this modality. */
bool modality_is_absent(int modality, int kinds, int64_t step);

/** Draw a clip's patches.  @param[out] x  [count, C], any floating format, in host memory. */
void clip_draw(const struct clip *, uint64_t seed, int64_t step, struct tensor x);

/** Where clips are, tokens are 0 and labels ignored, and so is the label of the token before.
 *  @param ids, labels  [rows] of the batch, from row `first` on. */
void clips_mark(const struct clips *, int64_t first, int64_t rows, int32_t *ids, int32_t *labels);

/* ---- encoders ---------------------------------------------------------------------------------------------------- */

enum encoder_param { ENCODER_UP_W, ENCODER_UP_B, ENCODER_OUT_W, ENCODER_OUT_B, ENCODER_PARAMS };

/** The numbers of a parameter: [F,C], [F], [D,F], [D]. */
int64_t encoder_count(const struct modality *, int64_t D, enum encoder_param);
int64_t encoder_counts(const struct modality *, int64_t D);

/** View a parameter of an encoder whose parameters lie one after the other.  @param all  [encoder_counts]. */
struct tensor encoder_view(const struct modality *, int64_t D, struct tensor all, enum encoder_param);

/** A parameter's name, shape and initial values: normal with standard deviation 1/sqrt of the inputs; biases 0. */
struct param_spec encoder_spec(const struct modality *, int64_t D, enum encoder_param);

/** Draw the initial values of all parameters, which lie one after the other.  Host memory. */
void encoder_draw(const struct modality *, int64_t D, uint64_t seed, struct tensor all);

/* ---- one device -------------------------------------------------------------------------------------------------- */

/* All encoders with all clips of a batch. */
struct serial_encoders {
    int kinds;                          /* modalities in use: the first so many */
    int64_t D;                          /* width of the model, which every encoder's output has */
    enum dtype dtype;                   /* format of weights and activations */
    struct tensor w[MODALITIES], g[MODALITIES], state[MODALITIES][OPTIMIZER_MAX_STATES];    /* [encoder_counts]; of
                                         * 16-bit weights, gradients and states are wider */
    struct tensor master[MODALITIES];   /* what the optimizer steps: the weights, or fp32 copies of 16-bit ones */
    struct observer observer;           /* see == NULL: none; of each tensor that is computed */
    struct clips clips;                 /* those of the current step */
    struct tensor x[MODALITIES], up[MODALITIES], act[MODALITIES], out[MODALITIES];      /* of this batch, clip after
                                         * clip */
    struct tensor rows, d_rows;         /* [patches, D] embeddings, and their gradients */
    int32_t *at;                        /* [B*S] the patch of each row of the batch, or -1 */
};

enum error_code serial_encoders_open(struct serial_encoders *, int kinds, int64_t D, const struct ops *, uint64_t seed,
                                     int states, struct error *);
void serial_encoders_close(struct serial_encoders *);

/** Compute the embeddings of a step's clips, of which the encoders keep a copy.  @return OK or ERR_MEMORY. */
enum error_code serial_encoders_forward(struct serial_encoders *, const struct ops *, const struct clips *,
                                        uint64_t seed, int64_t step, int64_t rows, struct error *);
/* The parts of this: after clips have been set, make tensors for their patches; compute what is in x. */
enum error_code serial_encoders_begin(struct serial_encoders *, struct error *);
void serial_encoders_compute(struct serial_encoders *, const struct ops *);
/** Add the gradients of d_rows to those of the weights.  @return OK or ERR_MEMORY. */
enum error_code serial_encoders_backward(struct serial_encoders *, const struct ops *, struct error *);

/** Step one encoder; each parameter has the weight decay of its kind, not that of `step`. */
void serial_encoder_step(struct serial_encoders *, int modality, const struct optimizer *, struct step);

#endif
