/* linear.c -- one linear layer's matrices on P devices under a tensor-parallel scheme.  Callers are
 * cli/show/tensor.c, draw/tensor/, which shows the pieces, and tests with exact sums.  Errors are ERR_USAGE, ERR_PLAN
 * and ERR_MEMORY. */
#include "emulated_devices/verify/cases/linear.h"
#include "ref/io/options.h"
#include <string.h>

const char *linear_matrix_name(enum linear_matrix matrix)
{
    static const char *const name[] = {
#define X(name) #name,
        LINEAR_MATRICES(X)
#undef X
    };
    return name[matrix];
}

/* Each matrix has an activation on its inner side. */
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

/* The layer's output or input has the model's width on the side of the stream, else that of the matrix. */
static enum activation_width width_of(const struct linear_layer *layer, bool output)
{
    if (leads_inside(layer->role) != output) return WIDTH_MODEL;
    int i = 0;
    while (roles[i].role != layer->role) i++;
    return roles[i].inner;
}

/* All devices together have so many columns of an activation. */
static int64_t whole_width(const struct model_config *config, enum activation_width width)
{
    switch (width) {
    case WIDTH_QKV:        return qkv_width(config);
    case WIDTH_HEADS:      return heads_width(config);
    case WIDTH_UP: case WIDTH_ACT: return config->F;
    case WIDTH_VOCABULARY: return config->V;
    default:               return config->D;
    }
}

enum error_code linear_shape(struct linear_layer *layer, const struct tensor_scheme *scheme,
                             enum param_role role, int P,
                             const struct model_config *config, int64_t N, struct error *err)
{
    *layer = (struct linear_layer){ .config = *config, .role = role, .N = N };
    layer->tp = (struct tensor_parallel){ .scheme = scheme, .S = 1 };
    /* I and O are the inputs and outputs of the whole product. */
    layer->I = whole_width(&layer->config, width_of(layer, false)),
        layer->O = whole_width(&layer->config, width_of(layer, true));
    return tensor_check(scheme, &layer->config, P, err);
}

/* ---- each device's part ------------------------------------------------------------------------------------------ */

static bool is_weight(enum linear_matrix matrix) { return matrix == LINEAR_W || matrix == LINEAR_dW; }
static bool is_output(enum linear_matrix matrix) { return matrix == LINEAR_Y || matrix == LINEAR_dY; }

int64_t linear_rows(const struct linear_layer *layer,
                    enum linear_matrix matrix) { return is_weight(matrix) ? layer->O : layer->N; }
int64_t linear_cols(const struct linear_layer *layer,
                    enum linear_matrix matrix) { return is_output(matrix) ? layer->O : layer->I; }

/* Whether a matrix's rows are those of the stream or of the inner side. */
static enum tensor_place side_of(const struct linear_layer *layer, enum linear_matrix matrix)
{
    return leads_inside(layer->role) == is_output(matrix) ? inner_side(layer->role) : STREAM;
}

struct part linear_part(const struct linear_layer *layer, int rank, enum linear_matrix matrix)
{
    struct tensor_parallel tp = layer->tp;
    struct part part = { .dim = { linear_rows(layer, matrix), linear_cols(layer, matrix) } };
    tensor_share(&tp, layer->tp.devices, rank);
    /* A fused matrix has several boxes of rows, all with the same columns. */
    if (is_weight(matrix)) {
        const struct param_spec spec = { .role = layer->role, .ndim = 2, .dim = { layer->O, layer->I } };
        const struct layout boxes = tensor_layout(&tp, &spec);
        for (int i = 0; i < boxes.boxes; i++)
            intervals_add(&part.rows, (struct interval){ boxes.box[i].start[0], boxes.box[i].extent[0] });
        intervals_add(&part.cols, (struct interval){ boxes.box[0].start[1], boxes.box[0].extent[1] });
        return part;
    }
    const struct interval rows = tensor_rows_at(&tp, side_of(layer, matrix), layer->N);
    intervals_add(&part.rows, rows);
    part.cols = activation_columns(&tp, width_of(layer, is_output(matrix)), false);
    return part;
}

/* ---- on a device ------------------------------------------------------------------------------------------------- */

/* The result is the number of rows that the model allocates.  A scheme may gather rows into its input's buffer. */
static int64_t rows_of_room(const struct linear_layer *layer, enum linear_matrix matrix)
{
    if (matrix == LINEAR_X && side_of(layer, matrix) == STREAM)
        return tensor_rows_at(&layer->tp, INPUT, layer->N).count;
    if (matrix == LINEAR_dY && side_of(layer, matrix) == STREAM)
        return tensor_rows_at(&layer->tp, GRADIENT, layer->N).count;
    struct part p = linear_part(layer, layer->tp.rank, matrix);
    const int64_t rows = intervals_total(&p.rows);
    part_free(&p);
    return rows;
}

enum error_code linear_open(struct linear_layer *layer, struct group *group, struct error *err)
{
    layer->tp.device = group->comm->device, layer->tp.config = &layer->config;
    enum error_code e = tensor_open(&layer->tp, group, err);
    for (enum linear_matrix m = 0; m < LINEAR_MATRIX_COUNT && !e; m++) {
        struct part p = linear_part(layer, group->rank, m);
        e = tensor_buffer(&layer->tp, &layer->piece[m], rows_of_room(layer, m), intervals_total(&p.cols), err);
        part_free(&p);
        if (!e) device_zero(layer->tp.device, layer->piece[m]);
    }
    return e;
}

void linear_close(struct linear_layer *layer)
{
    for (enum linear_matrix m = 0; m < LINEAR_MATRIX_COUNT; m++)
        if (layer->piece[m].data) device_free(layer->tp.device, layer->piece[m]);
    tensor_close(&layer->tp);
}

struct tensor linear_own(const struct linear_layer *layer, enum linear_matrix matrix)
{
    /* Only input and output gradient on the side of the stream have room for gathered rows. */
    const bool has_room = (matrix == LINEAR_X || matrix == LINEAR_dY) && side_of(layer, matrix) == STREAM;
    return has_room ? tensor_own_rows(&layer->tp, layer->piece[matrix], layer->N) : layer->piece[matrix];
}

enum error_code linear_pass(struct linear_layer *layer, enum tensor_pass pass, struct error *err)
{
    const struct tensor_scheme *s = layer->tp.scheme;
    const struct tensor *p = layer->piece;
    if (pass == FORWARD_PASS)
        return s->linear_forward(&layer->tp, layer->role, layer->N, p[LINEAR_Y], p[LINEAR_X], p[LINEAR_W],
                                 tensor_none, err);
    if (pass == INPUT_PASS)
        return s->linear_backward_input(&layer->tp, layer->role, layer->N, p[LINEAR_dX], p[LINEAR_dY],
                                        p[LINEAR_W], err);
    return s->linear_backward_weight(&layer->tp, layer->role, layer->N, p[LINEAR_dW], tensor_none, p[LINEAR_dY],
                                     p[LINEAR_X], err);
}

struct traffic linear_pass_cost(const struct linear_layer *layer, enum tensor_pass pass)
{
    struct forecast f = { .tp = &layer->tp };
    layer->tp.scheme->matrix_cost(&f, layer->role, pass, layer->N, false);
    return account_total(&f.sum);
}
