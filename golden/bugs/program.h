/* program.h -- a program under test: a GPT-2, a Llama and a Qwen3-MoE in C, on emulated ranks, in fp32, bf16 or fp16, with bugs that
 * can be switched on (list.h).
 *
 *     cc -O2 golden/bugs/[!.]*.c -lm -o buggy
 *     ./buggy model gpt2|llama|moe|dropout|warmup|mqa|gqa DIR   write a model and batches, for `orrery golden make`; dropout
 *                                                and warmup: gpt2's; mqa, gqa: a llama with 1 head of keys, 2 heads
 *     ./buggy run GOLDEN OUT [OPTION VALUE]...   train its three steps, and dump what is computed
 *     ./buggy list                               all bugs, one a line
 *
 * It shares nothing with Orrery, and needs only libm.  The files that it reads are trusted.  16 bits are emulated: what
 * is stored is rounded, sums and gradients of weights are in fp32, unless microbatches store theirs.
 */
#ifndef BUGGY_PROGRAM_H
#define BUGGY_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

enum { MOST_RANKS = 8, MOST_PARAMS = 64, MOST_LAYERS = 4, MOST_WIDE = 256, MOST_EXPERTS = 8, MOST_ROWS = MOST_WIDE };

/* ---- bugs -------------------------------------------------------------------------------------------------------- */

#define BUG(id, ...) id,
enum bug { NO_BUG,
#include "list.h"
           BUG_COUNT };
#undef BUG

extern enum bug bug;
#define IS(id) (bug == (id))
enum bug bug_named(const char *name);
void list_bugs(void);

/* ---- what is run ------------------------------------------------------------------------------------------------- */

enum format { FP32, BF16, FP16 };
enum order { SEQUENTIAL, REVERSED, BLOCKED, PAIRWISE, SHUFFLED, APART };
/* The gradient of a weight: added up in fp32 over all microbatches; or each one's is stored, and they are added in fp32,
 * or in the format. */
enum accumulation { IN_FP32, EACH_STORED, SUMS_STORED };

struct setting {
    enum format format;
    enum order order;                   /* in which products are added */
    bool steps;                         /* what is between the steps of an operation is stored */
    bool rounded;                       /* masters and moments are dumped in the format, though they are in fp32 */
    int parts;                          /* of a product, stored and then added */
    enum accumulation gradients;
    int pp, dp, tp, micros;             /* pp: stages, which only say whose a tensor is */
    enum batch_cut { RUNS, STRIDED, UNEVEN } cut;       /* copies have runs of sequences; r, r + dp, ...; the first copy one */
    int from;                           /* the step from which on the bug is there */
    int ep;                             /* the copies of the model along dp share out the experts, which ep says: as many, or 1 */
    unsigned long long seed;            /* of a shuffled order; apart: each sum has its own, so that copies differ by rounding */
    int resume;                         /* the step after which the run begins, with what the golden file has then; 0: the start */
    bool own;                           /* it begins with other numbers than the golden file's, as after own roundings */
    const char *optimizer;
    float scale;                        /* of the loss */
    bool copies_summed;                 /* gradients of copied keys and values are added up behind attention; else those of their weights */
};
extern struct setting set;

/* B sequences of S tokens; the letters of the documents.  moe: a llama with norms of heads, and experts. */
struct shape { int B, S, N, D, H, K, A, F, V, L, P, E, k, steps; bool llama, moe; float eps, theta, balance, rate; };
extern struct shape m;

/* Which of an axis' elements a rank has: at[0], at[1], ... */
struct cut { int count, at[MOST_WIDE]; };
enum axis { WHOLE, OF_QKV, OF_HEADS, OF_UP, OF_F };

struct param {
    char name[64];
    int rows, cols;                     /* a vector is one column */
    enum axis row_axis, col_axis;       /* how tp cuts it */
    bool matrix;
    float *start, *w, *old;             /* [rows,cols]: master in fp32, what is computed with, that of the step before */
    float *first, *second;              /* the optimizer's states */
    float *most;                        /* the largest second state so far: AMSGrad's */
    float *g, *g_before;                /* the whole gradient, and that of the step before */
};
extern struct param param[MOST_PARAMS];
extern int params;
int param_of(int layer, const char *name);
int owner_of(const struct param *);     /* which rank along ep has an expert's matrix; -1: all have it */

/* A rank's sequences, in the order of copies, and cuts. */
struct rank { int dp, tp, first, count; float *dw[MOST_PARAMS], *dw_head; };     /* dw_head: of the tied matrix, as the head */
extern struct rank rank[MOST_RANKS];
extern int ranks;
const struct cut *cut_of(enum axis, int whole, int tp);
bool is_copy(int tp, int row);          /* of queries, keys and values: a rank before has it, too */

/* ---- numbers (format.c) ------------------------------------------------------------------------------------------ */

float round_to(enum format, float);
float stored(float);                    /* in the format of the run */
float between(float);                   /* a step of an operation */
float add_up(float *term, int n);       /* in the order, format and parts of the run; changes term */
float add_in_one_part(float *term, int n);      /* what is no product with a matrix */

/* ---- dropout (dropout.c): nothing is dropped if the rate is 0 ---------------------------------------------------- */

enum drop { AFTER_ATTENTION, AFTER_MLP, PROBABILITIES, PLACES };
struct at { int row, first_row, col; }; /* of the whole batch; first_row: the rank's first */
/* Heads that a rank has, and where they and its sequences begin in the whole. */
struct heads_at { int layer, heads, kv_heads, head, sequence; };

void masks_of_step(int t);              /* from 1 */
float embedding_dropped(float x, int row, int col);
float branch_dropped(float x, int layer, enum drop, struct at);
float branch_back(float d, int layer, enum drop, struct at);
/* What the probability of query s and key t counts; sequence and head from the rank's first. */
float probability_times(const struct heads_at *, int sequence, int head, int s, int t, bool back);

/* ---- operations (ops.c, attention.c, loss.c): rows of one rank --------------------------------------------------- */

struct linear { int w, b, tp; };
void linear(float *Y, const float *X, struct linear, int rows, bool bias);
void linear_input(float *dX, const float *dY, struct linear, int rows);
void linear_weight(float *dW, float *db, const float *dY, const float *X, struct linear, int rows);
void norm(float *Y, const float *X, int w, int b, int rows);
void norm_input(float *dX, const float *dY, const float *X, int w, int rows);
void norm_weight(float *dw, float *db, const float *dY, const float *X, int rows);
void activation(float *Y, const float *X, int F, int rows);
void activation_input(float *dX, const float *dY, const float *X, int F, int rows);
void rotate(float *Y, const float *X, int heads, int kv_heads, int rows, bool back);
void attention(float *Y, const float *X, const struct heads_at *, int sequences);
void attention_input(float *dX, const float *dY, const float *Y, const float *X, const struct heads_at *, int sequences);
double loss(float *d_logits, const float *logits, const int *labels, int rows, int counted);

/* ---- the model and its training (model.c, train.c) --------------------------------------------------------------- */

extern int *ids, *labels;               /* of the current step */
void ranks_make(void);
int batch_place(int i);                 /* where the i-th sequence, in the order of copies, is in the batch */
int turned(int sequence);               /* which one has its place if each copy begins where the next should */
void pass(bool dump);                   /* forward, backward; fills loss_now and the gradients of the ranks */
void gradients_join(void);              /* sums over dp, and param[].g */
extern double loss_now, balance_now;
void train(void);

/* ---- clipping (clip.c) ------------------------------------------------------------------------------------------- */

void clip(float norm, float limit);     /* param[].g, as all of these */
void clip_by_ranks(float limit);
void clip_by_shards(float limit);
void clip_by_experts(float limit);
double squares_of_experts(int owner);   /* of param[].g; -1: of all experts */
void clip_before_sum(float limit);      /* what copies have before gradients_join */
void clipped_before_sum(void);          /* takes what was clipped then */
float norm_of_copy(void);               /* of the first one, before gradients_join */

/* ---- files (golden.c, dump.c) ------------------------------------------------------------------------------------ */

void golden_open(const char *path);
void golden_resume(int step);           /* what there is after a step: weights, and adamw's states */
int *golden_tokens(const char *name);   /* [steps,N] */
unsigned char *golden_bytes(const char *name);
double golden_number(const char *key);
double golden_number_or(const char *key, double otherwise);
void golden_numbers(const char *name, double *x, int n);
void model_write(const char *family, const char *dir);

/* A tensor of a rank: row and col say which rows and columns of the whole [rows,cols] it has; NULL: all. */
struct place {
    int rows, cols;
    const struct cut *row, *col;
    bool partial;                       /* a part of a sum over tp */
    bool last_stage;                    /* a copy that the last stage has */
    int micro;                          /* 1 + the microbatch that it is of; 0: it is of none */
    int piece;                          /* 1 + which of the rank's pieces; 0: the only one */
    const struct cut *copies;           /* a part of a sum over these ranks along tp; NULL: not of some */
};
void dump(int rank, const char *name, const float *x, bool in_fp32, float times, struct place);
void dump_write(const char *path);

/* A safetensors file: entries are added, then written. */
struct tensors;
struct tensors *tensors_new(void);
void tensors_add(struct tensors *, const char *name, const char *dtype, int ndim, const int dim[], const void *x,
                 size_t bytes);
void tensors_write(struct tensors *, const char *path, const char *metadata);

#endif
