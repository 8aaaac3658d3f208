#include "emulated_devices/verify/cases/linear.h"
#include "ref/io/options.h"
#include <string.h>

const char *linear_matrix_name(enum linear_matrix m)
{
    static const char *const name[] = {
#define X(name) #name,
        LINEAR_MATRICES(X)
#undef X
    };
    return name[m];
}

/* The activation on the inner side of each matrix. */
static const struct linear_role { const char *word; enum param_role role; enum activation_width inner; } roles[] = {
    { "qkv", ROLE_QKV, WIDTH_QKV }, { "out", ROLE_ATTENTION_OUT, WIDTH_HEADS }, { "up", ROLE_UP, WIDTH_UP },
    { "down", ROLE_DOWN, WIDTH_ACT }, { "head", ROLE_HEAD, WIDTH_VOCABULARY },
};
enum { ROLES = sizeof roles / sizeof *roles };

enum error_code linear_role(enum param_role *role, const char *word, struct error *err)
{
    const char *words[ROLES];
    for (int i = 0; i < ROLES; i++) {
        words[i] = roles[i].word;
        *role = roles[i].role;
        if (strcmp(word, words[i]) == 0) return OK;
    }
    return fail_unknown_name(err, "--role", word, words, ROLES);
}

static enum activation_width width_of(const struct linear_layer *l, bool output)
{
    if (leads_inside(l->role) != output) return WIDTH_MODEL;
    int i = 0;
    while (roles[i].role != l->role) i++;
    return roles[i].inner;
}

static int64_t whole_width(const struct model_config *c, enum activation_width width)
{
    switch (width) {
    case WIDTH_QKV:        return qkv_width(c);
    case WIDTH_HEADS:      return heads_width(c);
    case WIDTH_UP: case WIDTH_ACT: return c->F;
    case WIDTH_VOCABULARY: return c->V;
    default:               return c->D;
    }
}

enum error_code linear_shape(struct linear_layer *l, const struct tensor_scheme *scheme, enum param_role role, int P,
                             const struct model_config *c, int64_t N, struct error *err)
{
    *l = (struct linear_layer){ .config = *c, .role = role, .N = N };
    l->tp = (struct tensor_parallel){ .scheme = scheme, .S = 1 };
    l->I = whole_width(&l->config, width_of(l, false)), l->O = whole_width(&l->config, width_of(l, true));
    return tensor_check(scheme, &l->config, P, err);
}

/* ---- each device's part ------------------------------------------------------------------------------------------ */

static bool is_weight(enum linear_matrix m) { return m == LINEAR_W || m == LINEAR_dW; }
static bool is_output(enum linear_matrix m) { return m == LINEAR_Y || m == LINEAR_dY; }

int64_t linear_rows(const struct linear_layer *l, enum linear_matrix m) { return is_weight(m) ? l->O : l->N; }
int64_t linear_cols(const struct linear_layer *l, enum linear_matrix m) { return is_output(m) ? l->O : l->I; }

/* Whether a matrix's rows are those of the stream or of the inner side. */
static enum tensor_place side_of(const struct linear_layer *l, enum linear_matrix m)
{
    return leads_inside(l->role) == is_output(m) ? inner_side(l->role) : STREAM;
}

struct part linear_part(const struct linear_layer *l, int rank, enum linear_matrix m)
{
    struct tensor_parallel tp = l->tp;
    struct part part = { .dim = { linear_rows(l, m), linear_cols(l, m) } };
    tensor_share(&tp, l->tp.devices, rank);
    if (is_weight(m)) {
        const struct param_spec spec = { .role = l->role, .ndim = 2, .dim = { l->O, l->I } };
        const struct layout boxes = tensor_layout(&tp, &spec);
        for (int i = 0; i < boxes.boxes; i++)
            intervals_add(&part.rows, (struct interval){ boxes.box[i].start[0], boxes.box[i].extent[0] });
        intervals_add(&part.cols, (struct interval){ boxes.box[0].start[1], boxes.box[0].extent[1] });
        return part;
    }
    const struct interval rows = tensor_rows_at(&tp, side_of(l, m), l->N);
    intervals_add(&part.rows, rows);
    part.cols = activation_columns(&tp, width_of(l, is_output(m)), false);
    return part;
}

/* ---- on a device ------------------------------------------------------------------------------------------------- */

/* The number of rows that the model allocates. */
static int64_t rows_of_room(const struct linear_layer *l, enum linear_matrix m)
{
    if (m == LINEAR_X && side_of(l, m) == STREAM) return tensor_rows_at(&l->tp, INPUT, l->N).count;
    if (m == LINEAR_dY && side_of(l, m) == STREAM) return tensor_rows_at(&l->tp, GRADIENT, l->N).count;
    struct part p = linear_part(l, l->tp.rank, m);
    const int64_t rows = intervals_total(&p.rows);
    part_free(&p);
    return rows;
}

enum error_code linear_open(struct linear_layer *l, struct group *g, struct error *err)
{
    l->tp.device = g->comm->device, l->tp.config = &l->config;
    enum error_code e = tensor_open(&l->tp, g, err);
    for (enum linear_matrix m = 0; m < LINEAR_MATRIX_COUNT && !e; m++) {
        struct part p = linear_part(l, g->rank, m);
        e = tensor_buffer(&l->tp, &l->piece[m], rows_of_room(l, m), intervals_total(&p.cols), err);
        part_free(&p);
        if (!e) device_zero(l->tp.device, l->piece[m]);
    }
    return e;
}

void linear_close(struct linear_layer *l)
{
    for (enum linear_matrix m = 0; m < LINEAR_MATRIX_COUNT; m++)
        if (l->piece[m].data) device_free(l->tp.device, l->piece[m]);
    tensor_close(&l->tp);
}

struct tensor linear_own(const struct linear_layer *l, enum linear_matrix m)
{
    const bool has_room = (m == LINEAR_X || m == LINEAR_dY) && side_of(l, m) == STREAM;
    return has_room ? tensor_own_rows(&l->tp, l->piece[m], l->N) : l->piece[m];
}

enum error_code linear_pass(struct linear_layer *l, enum tensor_pass pass, struct error *err)
{
    const struct tensor_scheme *s = l->tp.scheme;
    const struct tensor *p = l->piece;
    if (pass == FORWARD_PASS)
        return s->linear_forward(&l->tp, l->role, l->N, p[LINEAR_Y], p[LINEAR_X], p[LINEAR_W], tensor_none, err);
    if (pass == INPUT_PASS)
        return s->linear_backward_input(&l->tp, l->role, l->N, p[LINEAR_dX], p[LINEAR_dY], p[LINEAR_W], err);
    return s->linear_backward_weight(&l->tp, l->role, l->N, p[LINEAR_dW], tensor_none, p[LINEAR_dY], p[LINEAR_X], err);
}

struct traffic linear_pass_cost(const struct linear_layer *l, enum tensor_pass pass)
{
    struct forecast f = { .tp = &l->tp };
    l->tp.scheme->matrix_cost(&f, l->role, pass, l->N, false);
    return account_total(&f.sum);
}
