/* slots.h -- the tensors of a pass that each rank has, and the mixture that may stand in place of the feed-forward. */
#ifndef BUGGY_SLOTS_H
#define BUGGY_SLOTS_H

#include "program.h"

enum slot { LN_1, QKV, NORMED, ROTATED, HEADS, ATTN_OUT, MID, LN_2, ROUTER, WEIGHTS, UP, ACT, EXPERTS_OUT, MLP_OUT, OUT,
            EMBEDDING, LN_F, LOGITS, SLOTS };

/* Of the current microbatch: a rank's activation and its gradient, layer L for what is outside the blocks. */
float *A(int r, int l, enum slot s);
float *G(int r, int l, enum slot s);
int rows_of(int r);                     /* tokens */
int width(int r, enum slot s);          /* columns that the rank has */
struct linear with(int r, int l, const char *gpt2, const char *llama);
float *dw(int r, int p);

#define RANKS for (int r = 0; r < ranks; r++)

/* The sum over tp of what stands in x of each rank, D columns; each then has it. */
void sum_over_tp(float *(*x)(int, int, enum slot), int l, enum slot s, bool missing, int times_first);

/* copies.c: ranks that have copies of the same keys and values. */
int heads_begin(int t);                 /* the first query head of a rank along tp */
void extend(struct cut *, int from, int to);
bool copies_any(void);
void copies_sum(int l, enum slot s);    /* a gradient: each copy then has the sum */
float *copies_once(int r, int l, enum slot s);
void copies_sum_weights(void);
/* Piece 0: a rank's queries; the others: a head of its keys and values.  @return how many pieces it has. */
int copies_cut(int t, int piece, struct cut *, struct cut *copies);

/* mixture.c: norms of heads; a router and its experts, whose columns are cut over tp. */
void head_norms(float *Y, const float *X, int l, int heads, int kv_heads, int rows);
void head_norms_input(float *dX, const float *dY, const float *X, int l, int heads, int kv_heads, int rows);
void head_norms_weight(float *dw, const float *dY, const float *X, int heads, int kv_heads, int rows);
void mixture_forward(int l);
void mixture_back(int l);               /* from the gradient of MLP_OUT; leaves that of LN_2, summed over tp */
double balance_loss(void);              /* of all layers, when all forward passes are done */
/* Where a rank's rows of choices are among those of the whole batch. */
void mixture_rows(int r, int l, struct cut *);

#endif
