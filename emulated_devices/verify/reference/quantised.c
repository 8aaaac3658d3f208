#include "emulated_devices/verify/reference/quantised.h"
#include "emulated_devices/schemes/data/units.h"
#include <stdlib.h>
#include <string.h>

static struct shards shards_of(const struct plan *p)
{
    struct shards s = { .P = 1, .weights = 1, .gradients = 1, .optimizer = 1 };
    data_shards(&s, &p->data, plan_copies(p), 0, NULL);
    return s;
}

bool quantised_before_use(const struct plan *p)
{
    return p->data.quantise_weights.bits > 0 && shards_of(p).weights > 1;
}

bool quantised_after_step(const struct plan *p)
{
    const struct shards s = shards_of(p);
    return data_renews_quantised(&p->data, &s);
}

/* A rank's pieces of the parameters of one unit, one after another, and the row that is sharded over dp. */
struct whole_unit { struct unit unit; struct parameter *parameter; char *whole, *row; };

static enum error_code open_unit(struct whole_unit *x, const struct plan *p, const struct shards *s, int rank,
                                 int which, struct error *err)
{
    const struct data_scheme *scheme;
    const int n = model_param_count(&p->model);
    int count = 0;
    enum error_code e = data_scheme_find(&scheme, p->data.scheme, err);
    *x = (struct whole_unit){ .parameter = calloc((size_t)n, sizeof *x->parameter) };
    if (!e && x->parameter == NULL) e = fail(err, ERR_MEMORY, "no memory for a list of %d parameters", n);
    for (int i = 0; i < n && !e; i++) {
        const struct param_spec spec = model_param(&p->model, i);
        x->parameter[count] = plan_piece(p, rank, i, &spec, 0);
        count += data_unit_of(&p->model, &p->data, &x->parameter[count]) == which;
    }
    if (e) return e;
    unit_lay_out(&x->unit, x->parameter, count, s, scheme->rows);
    x->whole = calloc((size_t)x->unit.elements + 1, dtype_size(p->dtype));
    x->row = calloc((size_t)x->unit.padded + 1, dtype_size(p->dtype));
    return x->whole && x->row
               ? OK
               : fail(err, ERR_MEMORY, "no memory to quantise %lld elements", (long long)x->unit.elements);
}

static void close_unit(struct whole_unit *x)
{
    free(x->parameter), free(x->whole), free(x->row);
}

struct copied { char *whole, *piece; size_t size; bool back; };

static void copy_run(void *context, struct run r)
{
    const struct copied *c = context;
    char *whole = c->whole + (size_t)r.whole * c->size, *piece = c->piece + (size_t)r.piece * c->size;
    memcpy(c->back ? whole : piece, c->back ? piece : whole, (size_t)r.length * c->size);
}

/* Copy between the model's tensors and the unit's pieces. */
static void copy(const struct whole_unit *x, struct tensor *w, bool back)
{
    for (int i = 0; i < x->unit.count; i++) {
        const struct parameter *p = &x->parameter[i];
        const size_t size = dtype_size(w[p->index].dtype);
        struct copied c = { w[p->index].data, x->whole + (size_t)p->place * size, size, back };
        layout_each_run(&p->layout, copy_run, &c);
    }
}

static enum error_code quantise_unit(const struct plan *p, const struct shards *s, int rank, int which,
                                     enum shard_level first, enum shard_level last, struct tensor *w,
                                     struct error *err)
{
    struct whole_unit x;
    enum error_code e = open_unit(&x, p, s, rank, which, err);
    const struct tensor_parallel tp = plan_tensor_share(p, rank);
    if (!e && x.unit.count > 0 && tensor_keeps_first(&tp, &x.parameter[0].spec)) {
        const struct interval all = { 0, x.unit.padded };
        copy(&x, w, false);
        unit_from_whole(NULL, &x.unit, all, x.row, x.whole, p->dtype);
        for (int l = (int)first; l >= (int)last && !e; l--)
            e = data_as_gathered(NULL, &p->data, s, (enum shard_level)l, &x.unit,
                                 tensor_1d(x.row, p->dtype, x.unit.padded), err);
        unit_to_whole(NULL, &x.unit, all, x.row, x.whole, p->dtype);
        copy(&x, w, true);
    }
    close_unit(&x);
    return e;
}

/* Quantise copied pieces only once: quantising a dequantised value again may give another code. */
static enum error_code quantise(const struct plan *p, enum shard_level first, enum shard_level last, struct tensor *w,
                                struct error *err)
{
    const struct shards s = shards_of(p);
    enum error_code e = OK;
    for (int tp = 0; tp < p->mesh.size[TP]; tp++) {
        const int rank = mesh_neighbour(&p->mesh, 0, TP, tp);
        for (int u = 0; u < data_unit_count(&p->model, &p->data) && !e; u++)
            e = quantise_unit(p, &s, rank, u, first, last, w, err);
    }
    return e;
}

enum error_code quantise_before_use(const struct plan *p, struct tensor *w, struct error *err)
{
    return quantise(p, BY_WEIGHTS, BY_WEIGHTS, w, err);
}
enum error_code quantise_after_step(const struct plan *p, struct tensor *w, struct error *err)
{
    return quantise(p, BY_OPTIMIZER, BY_GRADIENTS, w, err);
}
