#include "emulated_devices/plan/megatron.h"
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/device/kernel.h"
#include "emulated_devices/schemes/pipeline/timing.h"
#include <stdlib.h>

#define FORMAT F16

/* ---- kernels of a layer ------------------------------------------------------------------------------------------ */

/* What only reads and writes memory: how many tensors forward and backward, and by how many kernels.  A mask of one
 * byte for each number of two is half a tensor. */
enum size { ROWS,                       /* tokens x width; a part of the tokens with sequence parallelism */
            INNER,                      /* tokens x width / tp */
            SCORES };                   /* heads/tp x tokens x tokens */
static const struct moved { const char *what; enum size of; double forward, backward; int kernels, backward_kernels; }
moved[] = {
    { "two norms, the gradient added to the one that passes by", ROWS, 4, 8, 2, 4 },
    { "two times bias, dropout and addition", ROWS, 7, 8, 2, 4 },
    { "Q, K and V in the order of heads, and back", INNER, 6, 8, 2, 4 },
    { "bias and gelu of 4 width", INNER, 8, 12, 1, 2 },
    { "heads in the order of tokens", INNER, 2, 2, 1, 2 },
};
static const struct moved of_scores[] = {
    { "scale, mask and softmax", SCORES, 2, 3, 1, 1 },
    { "dropout of weights", SCORES, 2.5, 2.5, 1, 1 },
};
/* The fused softmax takes 4 heads at a time; for other numbers there are kernels for its steps. */
static const struct moved not_fused = { "the same, step by step", SCORES, 6, 6, 5, 5 };
enum { HEADS_AT_ONCE = 4 };

/* Time on the device, and kernels that the host issues. */
struct pass { picoseconds time; int kernels; };
struct layer { struct pass forward, backward, attention; };        /* attention: what `selective` computes again */

static void add_product(struct layer *l, const struct cluster *c, struct product p)
{
    const struct product input = { p.rows, p.depth, p.columns, p.count };
    const struct product weight = { p.depth, p.columns, p.rows, p.count };
    l->forward.time += kernel_product(c, FORMAT, p), l->forward.kernels++;
    l->backward.time += kernel_product(c, FORMAT, input) + kernel_product(c, FORMAT, weight), l->backward.kernels += 2;
}

static double elements(const struct megatron *m, enum size of)
{
    const double rows = (double)m->micro * m->tokens, width = m->width, t = m->tp;
    return of == ROWS ? rows * width / (m->sequence_parallel ? t : 1)
         : of == INNER ? rows * width / t : rows * m->tokens * m->heads / t;
}

/* A list's bytes are spread evenly over its kernels: only their sum counts. */
static void add_moved(struct layer *l, const struct megatron *m, const struct cluster *c, const struct moved *k)
{
    const double bytes = (double)dtype_size(FORMAT) * elements(m, k->of);
    l->forward.time += kernel_bytes(c, k->forward * bytes) + (k->kernels - 1) * c->kernels.launch;
    l->backward.time += kernel_bytes(c, k->backward * bytes) + (k->backward_kernels - 1) * c->kernels.launch;
    l->forward.kernels += k->kernels, l->backward.kernels += k->backward_kernels;
}

static void attention_kernels(struct layer *l, const struct megatron *m, const struct cluster *c)
{
    const int64_t s = m->tokens, heads = (int64_t)m->micro * m->heads / m->tp, each = m->width / m->heads;
    /* A head's scores are [s, s]; their weights times its values are [s, width of a head]. */
    add_product(l, c, (struct product){ s, s, each, heads });
    add_product(l, c, (struct product){ s, each, s, heads });
    for (size_t i = 0; i < sizeof of_scores / sizeof *of_scores; i++) add_moved(l, m, c, &of_scores[i]);
    if (heads % HEADS_AT_ONCE != 0) add_moved(l, m, c, &not_fused);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* The cluster as a group sees it of which each node's network card carries `flows` at once.  A link says what each of a
 * node's devices has of the card if all of them send. */
static struct cluster with_flows(const struct cluster *c, int flows)
{
    struct cluster own = *c;
    if (c->levels < 2) return own;
    const struct link *inside = &c->link[c->levels - 2];
    struct link *card = &own.link[c->levels - 1];
    const int64_t whole = card->rate * inside->devices / (flows < inside->devices ? flows : inside->devices);
    card->rate = whole < inside->rate ? whole : inside->rate;
    return own;
}

/* A ring over `members` ranks, `apart` from each other. */
static enum error_code ring_time(picoseconds *out, const struct megatron *m, const struct cluster *c, int members,
                                 int apart, int64_t bytes, struct error *err)
{
    int *rank = malloc((size_t)m->devices * sizeof *rank);
    if (rank == NULL) return fail(err, ERR_MEMORY, "no memory for a group of %d devices", members);
    const struct cluster own = with_flows(c, apart);
    struct collective call = { .count = bytes / 2, .dtype = FORMAT, .nodes.member = rank };
    for (int i = 0; i < members; i++) rank[i] = i * apart;
    *out = collective_time(algorithm_find(ALLREDUCE, "ring"), members, &call, &own);
    free(rank);
    return OK;
}

static picoseconds hop_time(const struct megatron *m, const struct cluster *c)
{
    const uint64_t bytes = dtype_size(FORMAT) * (uint64_t)m->micro * (uint64_t)m->tokens * (uint64_t)m->width /
                           (uint64_t)(m->scattered ? m->tp : 1);
    const struct cluster own = with_flows(c, m->tp * m->dp);
    const struct link *l = &own.link[link_between(own.link, own.levels, 0, m->tp * m->dp)];
    return m->pp > 1 ? l->latency + time_at_rate(bytes, l->rate) : 0;
}

/* ---- a layer ----------------------------------------------------------------------------------------------------- */

enum { COLLECTIVE_KERNELS = 3 };        /* of one call: the host prepares streams and buffers */

static void add_sums(struct pass *p, const struct megatron *m, picoseconds ring)
{
    if (m->tp == 1) return;
    /* A pass of a layer has two all-reduces along tp: of attention and of the feed-forward. */
    p->time += 2 * ring, p->kernels += 2 * COLLECTIVE_KERNELS;
}

static enum error_code layer_kernels(struct layer *l, const struct megatron *m, const struct cluster *c,
                                     struct error *err)
{
    const int64_t rows = (int64_t)m->micro * m->tokens, h = m->width, t = m->tp;
    picoseconds ring = 0;
    *l = (struct layer){ .forward.time = 0 };
    attention_kernels(l, m, c);
    l->attention = l->forward;
    /* The matrices are QKV [3h/t, h], projection [h, h/t], up [4h/t, h] and down [h, 4h/t]. */
    add_product(l, c, (struct product){ rows, 3 * h / t, h, 1 });
    add_product(l, c, (struct product){ rows, h, h / t, 1 });
    add_product(l, c, (struct product){ rows, 4 * h / t, h, 1 });
    add_product(l, c, (struct product){ rows, h, 4 * h / t, 1 });
    for (size_t i = 0; i < sizeof moved / sizeof *moved; i++) add_moved(l, m, c, &moved[i]);
    const enum error_code e = m->tp > 1 ? ring_time(&ring, m, c, m->tp, 1, 2 * rows * h, err) : OK;
    if (e) return e;
    add_sums(&l->forward, m, ring);
    add_sums(&l->backward, m, ring);
    const struct pass again = m->recompute == MEGATRON_FULL ? l->forward
                            : m->recompute == MEGATRON_SELECTIVE ? l->attention : (struct pass){ 0, 0 };
    l->backward.time += again.time, l->backward.kernels += again.kernels;
    return OK;
}

/* The host issues kernels while the device computes: the slower of the two decides. */
static picoseconds taken(struct pass p, const struct cluster *c)
{
    const picoseconds issue = p.kernels * c->kernels.issue;
    return p.time > issue ? p.time : issue;
}

/* The output matrix, and a loss that reads and writes logits in 32 bits. */
static struct layer output(const struct megatron *m, const struct cluster *c)
{
    struct layer l = { .forward.time = 0 };
    const int64_t rows = (int64_t)m->micro * m->tokens, columns = m->vocabulary / m->tp;
    add_product(&l, c, (struct product){ rows, columns, m->width, 1 });
    l.forward.time += kernel_bytes(c, 8.0 * (double)rows * (double)columns);
    l.backward.time += kernel_bytes(c, 8.0 * (double)rows * (double)columns);
    return l;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

double megatron_flops(const struct megatron *m)
{
    const double h = m->width, s = m->tokens, L = m->layers, V = m->vocabulary;
    return 96 * m->batch * s * L * h * h * (1 + s / (6 * h) + V / (16 * L * h));
}

double megatron_parameters(const struct megatron *m)
{
    const double h = m->width, s = m->tokens, L = m->layers, V = m->vocabulary;
    return 12 * L * h * h * (1 + 13 / (12 * h) + (V + s) / (12 * L * h));
}

static const char *refusal(const struct megatron *m)
{
    if (m->devices < 1 || m->tp < 1 || m->dp < 1 || m->pp < 1 || m->micro < 1 || m->chunks < 1 || m->heads < 1)
        return "sizes must be at least 1";
    if ((int64_t)m->tp * m->dp * m->pp != m->devices) return "tp, dp and pp do not make the number of devices";
    if (m->batch < 1 || m->batch % ((int64_t)m->dp * m->micro) != 0) return "the batch is not whole microbatches";
    if (m->layers < 1 || m->layers % ((int64_t)m->pp * m->chunks) != 0) return "layers do not divide into stages";
    return m->width % m->heads || m->heads % m->tp ? "heads do not divide" : NULL;
}

enum error_code megatron_schedule(struct schedule *s, const struct megatron *m, struct error *err)
{
    const char *why = refusal(m);
    if (why) return fail(err, ERR_PLAN, "tp %d, dp %d, pp %d of %d devices: %s", m->tp, m->dp, m->pp, m->devices, why);
    return schedule_make(s, m->chunks > 1 ? "interleaved" : "1f1b",
                         &(struct schedule_request){ .devices = m->pp, .micros = m->batch / m->dp / m->micro,
                                                     .chunks = m->chunks > 1 ? m->chunks : 0 }, err);
}

static int64_t nanoseconds(picoseconds t) { return (t + 500) / 1000; }

static enum error_code pipeline_time(picoseconds *out, const struct megatron *m, const struct schedule *s,
                                     const struct layer *l, const struct cluster *c, struct error *err)
{
    const struct layer last = output(m, c);
    const int64_t each = m->layers / s->stages;
    struct timing t;
    int64_t *room = malloc(3 * (size_t)s->stages * sizeof *room);
    if (room == NULL) return fail(err, ERR_MEMORY, "no memory to time %d stages", s->stages);
    const struct schedule_times times = uniform_times(
        s->stages, nanoseconds(each * taken(l->forward, c)), nanoseconds(each * taken(l->backward, c)), 0,
        nanoseconds(hop_time(m, c)), room);
    room[s->stages - 1] += nanoseconds(last.forward.time);
    room[2 * s->stages - 1] += nanoseconds(last.backward.time);
    const enum error_code e = schedule_time(&t, s, &times, err);
    free(room);
    if (e) return e;
    *out = t.makespan * 1000;
    timing_free(&t);
    return OK;
}

/* Gradients are summed in 32 bits; mixed-precision Adam reads 16 bytes of a parameter's gradient and state, writes 14,
 * and norms and scales the gradient before that. */
enum { GRADIENT_BYTES = 4, OPTIMIZER_BYTES = 40 };

enum error_code megatron_time(picoseconds *out, const struct megatron *m, const struct schedule *s,
                              const struct cluster *c, struct error *err)
{
    const double h = m->width;
    /* A device has 12 h^2 parameters of each of its layers, and the embedding, divided by tp. */
    const double parameters = (12 * h * h * m->layers / m->pp + (double)m->vocabulary * h) / m->tp;
    struct layer l;
    picoseconds pipeline = 0, sum = 0;
    enum error_code e = layer_kernels(&l, m, c, err);
    if (!e) e = pipeline_time(&pipeline, m, s, &l, c, err);
    if (!e && m->dp > 1) e = ring_time(&sum, m, c, m->dp, m->tp, (int64_t)(GRADIENT_BYTES * parameters), err);
    *out = pipeline + sum + kernel_bytes(c, OPTIMIZER_BYTES * parameters) + c->kernels.step;
    return e;
}
