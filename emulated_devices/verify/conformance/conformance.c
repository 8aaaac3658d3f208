/* conformance.c -- tries one row of the table of operations on a backend, in all formats and sizes.  Callers are
 * `orrery kernel` (course/compile/) and test_conformance.c.  Differences are counted and told line by line; only
 * ERR_DEVICE and ERR_MEMORY are errors. */
#include "emulated_devices/verify/conformance/conformance.h"
#include "emulated_devices/verify/conformance/operations.h"
#include "ref/io/pair.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* B, S, H, A, V.  The first is that of test_backend.c; then odd sizes around those of tiles and blocks; few rows, one,
 * none. */
static const int64_t sizes_of[CONFORMANCE_SIZES][5] = {
    { 2, 3, 2, 4, 10 }, { 1, 35, 3, 6, 131 }, { 2, 33, 2, 131, 67 }, { 1, 129, 4, 9, 33 }, { 2, 16, 2, 66, 300 },
    { 1, 3, 2, 3, 5 }, { 1, 1, 3, 2, 5 }, { 0, 3, 2, 4, 10 },
};
static const enum dtype formats[] = { F64, F32, BF16, F16 };
enum { FORMATS = sizeof formats / sizeof *formats };

/* The sizes are variables of operations.h, which its rows read: a case must not run beside another one. */
static void resize(int i)
{
    B = sizes_of[i][0], S = sizes_of[i][1], H = sizes_of[i][2], A = sizes_of[i][3], V = sizes_of[i][4];
}

/* An operation has made these. */
struct made {
    double *x;                          /* all operands afterwards, one after the other; numbers for the host */
    int64_t count, end[OPERANDS + 1];   /* numbers in x; where each operand ends there */
    enum dtype format[OPERANDS + 1];    /* of each operand; of all else, the device's */
    int outside;                        /* elements around operands that were written */
    uint64_t operations;
    struct op_cost done;
};

/* ---- operands ---------------------------------------------------------------------------------------------------- */

/* The result is the number that an operand has after rounding to a format, in fp64. */
static double held(double x, enum dtype dtype)
{
    double back = 0;
    struct tensor one = tensor_1d(&back, dtype, 1);
    tensor_set(one, 0, x);
    return tensor_get(one, 0);
}

/* This is the part of an fp32 number that 16 bits cannot hold. */
static double fine(int64_t i) { return (double)(i * 29 % 64) / 16384; }

static double conformance_element(struct tensor x, int64_t i)
{
    return x.dtype == I32 ? (double)((int32_t *)x.data)[i] : tensor_get(x, i);
}

/* So many elements lie before and after an operand, with this number in them. */
enum { AROUND = 3, AROUND_HOLDS = 77 };

static int64_t around_at(int64_t n, int i) { return i < AROUND ? i : n - 1 - (i - AROUND); }

/* Write a known number into the elements before and after an operand, for changed_around. */
static void fill_around(struct device *device, struct tensor whole)
{
    struct views v = views_of(device);
    const struct tensor seen = view_write(&v, whole);
    for (int i = 0; i < 2 * AROUND; i++) {
        const int64_t k = around_at(tensor_count(whole), i);
        if (whole.dtype == I32) ((int32_t *)seen.data)[k] = AROUND_HOLDS;
        else tensor_set(seen, k, AROUND_HOLDS);
    }
    views_end(&v);
}

/* Count the elements around an operand that no longer have the known number: the operation wrote outside. */
static int changed_around(struct device *device, struct tensor whole)
{
    struct views v = views_of(device);
    const struct tensor seen = view_read(&v, whole);
    int changed = 0;
    for (int i = 0; i < 2 * AROUND; i++)
        changed += conformance_element(seen, around_at(tensor_count(whole), i)) != AROUND_HOLDS;
    views_end(&v);
    return changed;
}

/* The result is the allocation in whose middle an operand lies. */
static struct tensor whole_of(struct tensor x)
{
    char *data = x.data;
    return tensor_1d(data - AROUND * dtype_size(x.dtype), x.dtype, tensor_count(x) + 2 * AROUND);
}

static int64_t conformance_elements(struct operand operand) { return operand.rows * (operand.cols ? operand.cols : 1); }

/* Make operand k on the device: its memory begins at an odd place, with known elements around.  Numbers fit into
 * `written`, so a run in fp64 has the same operands. */
static struct tensor operand_in(struct device *device, int k, struct operand operand, enum dtype written)
{
    const enum dtype t = operand.most ? I32 : operand.statistic ? dtype_wide(device->dtype) : device->dtype;
    const enum dtype as = operand.most ? I32 : operand.statistic ? dtype_wide(written) : written;
    const struct tensor whole = device_tensor_in(device, BUFFERS, t, conformance_elements(operand) + 2 * AROUND);
    struct tensor x = tensor_1d((char *)whole.data + AROUND * dtype_size(t), t, conformance_elements(operand));
    if (operand.cols) x = tensor_2d(x.data, t, operand.rows, operand.cols);
    if (!device->backend->has_numbers) return x;
    fill_around(device, whole);
    struct views v = views_of(device);
    const struct tensor seen = view_write(&v, x);
    if (operand.most) fill(seen, k, operand.most);
    else for (int64_t i = 0; i < tensor_count(x); i++)
        /* statistics are above 0 */
        tensor_set(seen, i, held(number(k, i) + (operand.statistic ? fine(i) : -1), as));
    views_end(&v);
    return x;
}

/* Append an operand's numbers to `made`; a backend without numbers appends nothing. */
static void read_back(struct made *made, struct device *device, struct tensor x, int k)
{
    struct views v = views_of(device);
    const struct tensor seen = view_read(&v, x);
    for (int64_t i = 0; i < tensor_count(x) && device->backend->has_numbers; i++)
        made->x[made->count++] = conformance_element(seen, i);
    made->end[k] = made->count;
    views_end(&v);
}

/* ---- a case ------------------------------------------------------------------------------------------------------ */

/* Run an operation in a format, on numbers that fit into `written`. */
static enum error_code conformance_make(struct made *made, const struct backend *backend, enum dtype dtype,
                                        enum dtype written, const struct operation *op, struct error *err)
{
    struct device d;
    struct tensor x[OPERANDS] = { 0 };
    struct operand o[OPERANDS] = { 0 };
    const int used = op->operands(o);
    const enum error_code e = device_open(&d, backend, dtype, 0, err);
    if (e) return e;
    /* An operation may also return numbers to the host; they are compared as a last operand. */
    memset(numbers, 0, sizeof numbers);
    for (int k = 0; k < used; k++) x[k] = operand_in(&d, k, o[k], written);
    const uint64_t before = d.operations;
    op->run(&d, x);
    made->operations = d.operations - before, made->done = d.done, made->count = 0, made->outside = 0;
    for (int k = 0; k <= OPERANDS; k++)
        made->format[k] = k < used && x[k].dtype == dtype_wide(dtype) ? x[k].dtype : dtype;
    for (int k = 0; k < used; k++) {
        read_back(made, &d, x[k], k);
        if (backend->has_numbers) made->outside += changed_around(&d, whole_of(x[k]));
        device_free(&d, whole_of(x[k]));
    }
    for (int k = used; k < OPERANDS; k++) made->end[k] = made->count;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && backend->has_numbers; i++)
        made->x[made->count++] = numbers[i];
    made->end[OPERANDS] = made->count;
    device_close(&d);
    return OK;
}

/* bound = 10 sqrt(n) u + 2 u16: conformance.h says where each term comes from.  n covers rows, widths and V. */
static double bound_of(enum dtype dtype)
{
    const double n = (double)(N > WIDTH ? N : WIDTH) + (double)V, u16 = dtype_wide(dtype) != dtype
        ? dtype_unit(dtype) : 0;
    return 10 * sqrt(n) * dtype_unit(dtype_wide(dtype)) + 2 * u16;
}

/* The result is the norm of a, or of a - b.  Equal infinities and two NaNs have no difference. */
static double norm_of(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = b ? a[i] - b[i] : a[i];
        if (!(b && (a[i] == b[i] || (isnan(a[i]) && isnan(b[i]))))) sum += x * x;
    }
    return sqrt(sum);
}

/* The larger of two errors; what is not a number is the largest. */
static double worse(double a, double b) { return isnan(a) || b <= a ? a : b; }

struct told { conformance_says *says; void *to; };

/* "attention_forward, masked in bf16, B=1 S=35 H=3 A=6 V=131: ..." */
static void conformance_tell(const struct told *told, const struct operation *op, enum dtype in, const char *what)
{
    char line[300];
    snprintf(line, sizeof line, "%s in %s, B=%d S=%d H=%d A=%d V=%d: %s", op->name, dtype_name(in), (int)B, (int)S,
             (int)H, (int)A, (int)V, what);
    if (told->says) told->says(told->to, line);
}

/* The result is the largest error over bound of an operation's operands. */
static double conformance_compare(const struct told *told, const struct operation *op, enum dtype dtype,
                                  const struct made *got, const struct made *want)
{
    double worst = 0;
    char what[100];
    for (int k = 0; k <= OPERANDS; k++) {
        const int64_t from = k > 0 ? want->end[k - 1] : 0, n = want->end[k] - from;
        const double size = norm_of(want->x + from, NULL, n), off = norm_of(got->x + from, want->x + from, n);
        const double error = off == 0 ? 0 : off / (size > 0 ? size : 1), bound = bound_of(got->format[k]),
                     ratio = error / bound;
        worst = worse(worst, ratio);
        if (ratio <= 1) continue;
        const struct pair_text two = pair_text('e', 1, error, bound);
        snprintf(what, sizeof what, "operand %d: error %s, bound %s", k, two.first, two.second);
        conformance_tell(told, op, dtype, what);
    }
    return worst;
}

/* Judge one case: errors over bounds with numbers, costs without; and elements written outside in both. */
static void judge_case(struct conforms *conforms, const struct told *told, const struct backend *backend,
                       enum dtype dtype, const struct operation *op, const struct made *got, const struct made *want)
{
    /* Where there are numbers, `want` is in fp64, whose bytes are others. */
    const bool costs = backend->has_numbers
        || (got->operations == want->operations && got->done.flops == want->done.flops
            && got->done.bytes == want->done.bytes);
    const double ratio = backend->has_numbers ? conformance_compare(told, op, dtype, got, want) : 0;
    if (got->outside) conformance_tell(told, op, dtype, "writes outside its operands");
    if (!costs) conformance_tell(told, op, dtype, "other costs than cpu");
    conforms->cases++, conforms->wrong += !(ratio <= 1) || got->outside || !costs;
    conforms->worst = worse(conforms->worst, ratio);
}

/* Room for what an operation makes at the current sizes. */
static double *room_for(const struct operation *op)
{
    struct operand o[OPERANDS] = { 0 };
    int64_t n = sizeof numbers / sizeof *numbers;
    op->operands(o);
    for (int k = 0; k < OPERANDS; k++) n += conformance_elements(o[k]);
    return malloc((size_t)n * sizeof(double));
}

/* Run one case on the backend and on the CPU, in fp64 if the backend has numbers, and judge both. */
static enum error_code try_case(struct conforms *conforms, const struct told *told, const struct backend *backend,
                                enum dtype dtype, const struct operation *op, struct error *err)
{
    struct made got = { .x = room_for(op) }, want = { .x = room_for(op) };
    enum error_code e = got.x && want.x ? OK : fail(err, ERR_MEMORY, "no memory for the results of %s", op->name);
    if (!e) e = conformance_make(&got, backend, dtype, dtype, op, err);
    if (!e) e = conformance_make(&want, backend_find("cpu"), backend->has_numbers ? F64 : dtype, dtype, op, err);
    if (!e) judge_case(conforms, told, backend, dtype, op, &got, &want);
    free(got.x), free(want.x);
    return e;
}

int conformance_rows(void) { return ALL; }

const char *conformance_row(int row) { return all[row].name; }

enum error_code conformance_try(struct conforms *conforms, const struct backend *backend, int row, int sizes,
                                conformance_says *says, void *to, struct error *err)
{
    const struct told told = { says, to };
    enum error_code e = OK;
    *conforms = (struct conforms){ 0 };
    for (int i = 0; i < sizes && !e; i++)
        for (int f = 0; f < FORMATS && !e; f++) {
            resize(i);
            e = try_case(conforms, &told, backend, formats[f], &all[row], err);
        }
    return e;
}
