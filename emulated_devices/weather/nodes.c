/* nodes.c -- a network's nodes on tiles: convolutions and transforms by schemes/spatial/, the rest on the own points.
 *
 * learner.c calls these functions; a node is collective over the tiles of a field.  Errors: ERR_MEMORY, and those of
 * messages.
 */
#include "emulated_devices/weather/learner.h"
#include "emulated_devices/device/compute.h"
#include "ref/weather/pointwise.h"
#include <string.h>

bool weather_only_counts(const struct weather_learner *learner)
{
    return !learner->comm->device->backend->has_numbers;
}

int64_t weather_fields(const struct weather_learner *learner)
{
    return learner->samples.count * learner->members.count;
}

int64_t weather_tile_points(const struct weather_learner *learner)
{
    return learner->rows.count * learner->columns.count;
}

struct tensor weather_piece_of(const struct weather_learner *learner, struct tensor of, int param)
{
    const struct weather_piece p = learner->piece[param];
    return tensor_1d((char *)of.data + (uint64_t)p.at * sizeof(double), F64, p.count);
}

struct tensor weather_room(struct weather_learner *learner, enum arena_tag tag, int64_t n, enum error_code *e,
                           struct error *err)
{
    const struct tensor t = *e ? tensor_none : device_tensor_in(learner->comm->device, tag, F64, n > 0 ? n : 1);
    if (t.data == NULL && !*e) *e = fail(err, ERR_MEMORY, "no memory for %lld numbers of a tile", (long long)n);
    return t;
}

/* Fields and channels of a node's input and output, at this device's points. */
static struct points points_of(const struct weather_learner *learner, const struct weather_node *node)
{
    const struct weather_network *const n = &learner->network;
    return (struct points){ weather_fields(learner), n->channels[node->in], n->channels[node->out],
                            weather_tile_points(learner) };
}

static struct spatial_convolution convolution_of(const struct weather_learner *learner, const struct weather_node *node)
{
    const struct points p = points_of(learner, node);
    return (struct spatial_convolution){ &learner->network.filter[node->filter], learner->job->form, p.N * node->parts,
                                         p.in / node->parts, p.out / node->parts, node->groups, node->given };
}

static struct spectra spectra_of(const struct weather_learner *learner, struct points p)
{
    return (struct spectra){ p.N, p.in, p.out, learner->degrees.count, learner->orders.count };
}

static int64_t numbers_of_spectra(struct spectra s, int64_t channels)
{
    return 2 * s.N * channels * s.degrees * s.orders;
}

int64_t weather_kept(const struct weather_learner *learner, int node)
{
    const struct weather_node *const n = &learner->network.node[node];
    const struct points p = points_of(learner, n);
    if (n->op == WEATHER_LOCAL) return p.N * p.in * learner->network.filter[n->filter].K * p.count;
    return n->op == WEATHER_GLOBAL ? numbers_of_spectra(spectra_of(learner, p), p.in) : 0;
}

/* Charge for what is computed at every point. */
static void charge(const struct weather_learner *learner, const char *what, double flops, int64_t numbers)
{
    if (numbers == 0) return;
    device_charge(learner->comm->device, what,
                  (struct op_cost){ .flops = flops, .bytes = (double)numbers * sizeof(double) });
}

static void give_back(struct weather_learner *learner, struct tensor t)
{
    if (t.data) device_free(learner->comm->device, t);
}

/* ---- spectral convolution ---------------------------------------------------------------------------------------- */

/* Products for each degree, on this device's degrees and orders. */
static void contract(struct weather_learner *learner, int i, struct points p, struct tensor product)
{
    const struct spectra s = spectra_of(learner, p);
    struct views v = views_of(learner->comm->device);
    if (numbers_of_spectra(s, p.in) > 0 && !weather_only_counts(learner)) {
        const double *const w = view_read(&v, weather_piece_of(learner, learner->weights,
                                                               learner->network.node[i].weight)).data;
        spectra_contract(s, w, view_read(&v, learner->kept[i]).data, view_write(&v, product).data);
    }
    views_end(&v);
    charge(learner, "product of spectra", 8 * (double)(s.N * s.in * s.out * s.degrees * s.orders),
           numbers_of_spectra(s, s.in + s.out));
}

static enum error_code global_forward(struct weather_learner *learner, int i, struct points p, struct account *cost,
                                      struct error *err)
{
    const struct weather_node *const node = &learner->network.node[i];
    const struct harmonics *const h = &learner->network.harmonics;
    enum error_code e = OK;
    const struct tensor product = cost ? tensor_none
        : weather_room(learner, BUFFERS, numbers_of_spectra(spectra_of(learner, p), p.out), &e, err);
    if (!e) e = spatial_to_spectrum(&learner->tiling, h, ANALYSIS, p.N * p.in, learner->slot[node->in],
                                    learner->kept[i], cost, err);
    if (!e && !cost) contract(learner, i, p, product);
    if (!e) e = spatial_to_grid(&learner->tiling, h, SYNTHESIS, p.N * p.out, product, learner->slot[node->out], cost,
                                err);
    give_back(learner, product);
    return e;
}

/* Gradients of the spectrum that was kept, and of the own degrees' weights, from own orders alone. */
static void contract_backward(struct weather_learner *learner, int i, struct points p, struct tensor slope,
                              struct tensor back)
{
    const struct spectra s = spectra_of(learner, p);
    const int weight = learner->network.node[i].weight;
    struct views v = views_of(learner->comm->device);
    if (learner->piece[weight].count > 0 && !weather_only_counts(learner)) {
        const double *const w = view_read(&v, weather_piece_of(learner, learner->weights, weight)).data,
                     *const c = view_read(&v, learner->kept[i]).data, *const d = view_read(&v, slope).data;
        double *const d_c = view_write(&v, back).data,
               *const d_w = view_write(&v, weather_piece_of(learner, learner->gradients, weight)).data;
        spectra_contract_backward(s, w, c, d, d_c, d_w);
    }
    views_end(&v);
    charge(learner, "product of spectra backward", 16 * (double)(s.N * s.in * s.out * s.degrees * s.orders),
           2 * numbers_of_spectra(s, s.in + s.out));
}

/* to += add. */
static void add_to(struct weather_learner *learner, struct tensor to, struct tensor add, int64_t n)
{
    if (!weather_only_counts(learner)) {
        struct views v = views_of(learner->comm->device);
        const double *const from = view_read(&v, tensor_1d(add.data, F64, n)).data;
        double *const sum = view_write(&v, tensor_1d(to.data, F64, n)).data;
        for (int64_t k = 0; k < n; k++) sum[k] += from[k];
        views_end(&v);
    }
    charge(learner, "sum of gradients", (double)n, 3 * n);
}

static enum error_code global_backward(struct weather_learner *learner, int i, struct points p, struct account *cost,
                                       struct error *err)
{
    const struct weather_node *const node = &learner->network.node[i];
    const struct harmonics *const h = &learner->network.harmonics;
    const struct spectra s = spectra_of(learner, p);
    const int64_t fields = p.N * p.in * p.count;
    struct tensor slope = tensor_none, back = tensor_none, add = tensor_none;
    enum error_code e = OK;
    if (!cost) slope = weather_room(learner, BUFFERS, numbers_of_spectra(s, p.out), &e, err);
    if (!cost) back = weather_room(learner, BUFFERS, numbers_of_spectra(s, p.in), &e, err);
    if (!cost) add = weather_room(learner, BUFFERS, fields, &e, err);
    if (!e) e = spatial_to_spectrum(&learner->tiling, h, SYNTHESIS, p.N * p.out, learner->slope[node->out], slope, cost,
                                    err);
    if (!e && !cost) contract_backward(learner, i, p, slope, back);
    if (!e) e = spatial_to_grid(&learner->tiling, h, ANALYSIS, p.N * p.in, back, add, cost, err);
    if (!e && !cost) add_to(learner, learner->slope[node->in], add, fields);
    give_back(learner, slope), give_back(learner, back), give_back(learner, add);
    return e;
}

/* ---- local convolution ------------------------------------------------------------------------------------------- */

static enum error_code local_forward(struct weather_learner *learner, int i, struct account *cost, struct error *err)
{
    const struct weather_node *const node = &learner->network.node[i];
    const struct spatial_convolution c = convolution_of(learner, node);
    return spatial_convolve(&learner->tiling, &c, learner->slot[node->in],
                            weather_piece_of(learner, learner->weights, node->weight), learner->kept[i],
                            learner->slot[node->out], cost, err);
}

static enum error_code local_backward(struct weather_learner *learner, int i, struct points p, struct account *cost,
                                      struct error *err)
{
    const struct weather_node *const node = &learner->network.node[i];
    const struct spatial_convolution c = convolution_of(learner, node);
    const int64_t fields = p.N * p.in * p.count;
    enum error_code e = OK;
    const struct tensor add = cost || node->given ? tensor_none : weather_room(learner, BUFFERS, fields, &e, err);
    if (!e) e = spatial_convolve_backward(&learner->tiling, &c, learner->kept[i],
                                          weather_piece_of(learner, learner->weights, node->weight),
                                          learner->slope[node->out], add,
                                          weather_piece_of(learner, learner->gradients, node->weight), cost, err);
    if (!e && add.data) add_to(learner, learner->slope[node->in], add, fields);
    give_back(learner, add);
    return e;
}

/* ---- points ------------------------------------------------------------------------------------------------------ */

/* The operands of a node on the host; gradients are there in a backward pass. */
struct operands { const double *x, *more, *weight, *bias, *d_y; double *y, *d_x, *d_more, *d_weight, *d_bias; };

static const double *views_read(struct views *views, struct tensor t)
{
    return t.data ? view_read(views, t).data : NULL;
}
static double *views_write(struct views *views, struct tensor t) { return t.data ? view_write(views, t).data : NULL; }

static struct operands operands_of(const struct weather_learner *learner, const struct weather_node *node,
                                   struct views *views, bool backward)
{
    struct operands o = { .x = views_read(views, learner->slot[node->in]) };
    if (node->more >= 0) o.more = views_read(views, learner->slot[node->more]);
    if (node->weight >= 0) o.weight = views_read(views, weather_piece_of(learner, learner->weights, node->weight));
    if (node->bias >= 0) o.bias = views_read(views, weather_piece_of(learner, learner->weights, node->bias));
    if (!backward) {
        o.y = views_write(views, learner->slot[node->out]);
        return o;
    }
    o.d_y = views_read(views, learner->slope[node->out]);
    if (!node->given) o.d_x = views_write(views, learner->slope[node->in]);
    if (node->more >= 0) o.d_more = views_write(views, learner->slope[node->more]);
    if (node->weight >= 0) o.d_weight = views_write(views, weather_piece_of(learner, learner->gradients, node->weight));
    if (node->bias >= 0) o.d_bias = views_write(views, weather_piece_of(learner, learner->gradients, node->bias));
    return o;
}

/* The sum of two sides of a join: fields of `more` begin behind those of `in`. */
static struct points side(struct points p, bool more)
{
    return (struct points){ p.N, p.out, more ? p.out - p.in : p.in, p.count };
}

static void points_forward(struct weather_learner *learner, const struct weather_node *node, struct points p)
{
    struct views v = views_of(learner->comm->device);
    const struct operands o = operands_of(learner, node, &v, false);
    switch (node->op) {
    case WEATHER_TAKE: points_take(p, node->first, o.x, o.y); break;
    case WEATHER_JOIN:
        memset(o.y, 0, (size_t)(p.N * p.out * p.count) * sizeof *o.y);
        points_give(side(p, false), 0, o.x, o.y), points_give(side(p, true), p.in, o.more, o.y);
        break;
    case WEATHER_LINEAR: points_linear(p, o.weight, o.bias, o.x, o.y); break;
    case WEATHER_GELU: points_gelu(p.N * p.in * p.count, o.x, o.y); break;
    default: points_residual(p, o.weight, o.x, o.more, o.y); break;
    }
    views_end(&v);
}

static void points_backward(struct weather_learner *learner, const struct weather_node *node, struct points p)
{
    struct views v = views_of(learner->comm->device);
    const struct operands o = operands_of(learner, node, &v, true);
    switch (node->op) {
    case WEATHER_TAKE: if (!node->given) points_give(p, node->first, o.d_y, o.d_x); break;
    case WEATHER_JOIN: points_back(side(p, false), 0, o.d_y, o.d_x), points_back(side(p, true), p.in, o.d_y, o.d_more);
        break;
    case WEATHER_LINEAR:
        points_linear_backward(p, o.weight, o.x, o.d_y, o.d_x, o.d_weight, o.d_bias);
        break;
    case WEATHER_GELU: points_gelu_backward(p.N * p.in * p.count, o.x, o.d_y, o.d_x); break;
    default: points_residual_backward(p, o.weight, o.more, o.d_y, o.d_x, o.d_more, o.d_weight); break;
    }
    views_end(&v);
}

/* A node computes so many operations for each number that it makes, and reads and writes its fields. */
static void charge_points(struct weather_learner *learner, const struct weather_node *node, struct points p,
                          bool backward)
{
    static const char *const name[][2] = {
        [WEATHER_TAKE] = { "channels taken", "channels taken backward" },
        [WEATHER_JOIN] = { "channels joined", "channels joined backward" },
        [WEATHER_LINEAR] = { "layer of channels", "layer of channels backward" },
        [WEATHER_GELU] = { "gelu", "gelu backward" },
        [WEATHER_RESIDUAL] = { "residual", "residual backward" },
    };
    const double made = (double)(p.N * p.out * p.count);
    const double each = node->op == WEATHER_LINEAR ? 2 * (double)p.in * (backward ? 2 : 1) : node->op == WEATHER_GELU
        ? 10 : node->op == WEATHER_RESIDUAL ? 2 * (backward ? 2 : 1) : 0;
    charge(learner, name[node->op][backward], each * made, (backward ? 2 : 1) * p.N * (p.in + p.out) * p.count);
}

enum error_code weather_node_forward(struct weather_learner *learner, int i, struct account *cost, struct error *err)
{
    const struct weather_node *const node = &learner->network.node[i];
    const struct points p = points_of(learner, node);
    if (node->op == WEATHER_LOCAL) return local_forward(learner, i, cost, err);
    if (node->op == WEATHER_GLOBAL) return global_forward(learner, i, p, cost, err);
    if (cost) return OK;
    if (!weather_only_counts(learner)) points_forward(learner, node, p);
    charge_points(learner, node, p, false);
    return OK;
}

enum error_code weather_node_backward(struct weather_learner *learner, int i, struct account *cost, struct error *err)
{
    const struct weather_node *const node = &learner->network.node[i];
    const struct points p = points_of(learner, node);
    if (node->op == WEATHER_LOCAL) return local_backward(learner, i, p, cost, err);
    if (node->op == WEATHER_GLOBAL) return global_backward(learner, i, p, cost, err);
    if (cost) return OK;
    if (!weather_only_counts(learner)) points_backward(learner, node, p);
    charge_points(learner, node, p, true);
    return OK;
}
