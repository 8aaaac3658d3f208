/* entries.h -- rows of operations outside `ops` (OPTIONAL_ENTRIES of device/backend.h) for which there are kernels, so
 * that a file of them can be tried alone; part of operations.h.  Their bits, on every backend: test_backend_entries.c.
 *
 * X(name, of what, its operands, its call) operations.h includes this file.
 */
#include "emulated_devices/device/backend.h"
#include "ref/optim/optimizer.h"

/* The exact sum of squares has no rounding, whatever the order of the elements is. */
static void squares_exactly(struct device *device, struct tensor x)
{
    struct exact_sum sum = { 0 };
    device_add_squares(device, &sum, &x, 1);
    numbers[0] = exact_value(&sum);
}

/* Step one master [N D] with a gradient in the device's format.  The hyperparameters are arbitrary; none is 1. */
static void step_of(struct device *device, const char *name, struct tensor *tensor)
{
    static const struct hyperparameters hyper = { .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .momentum = 0.9 };
    const struct step step = { .lr = 0.25, .weight_decay = 0.5, .gradient_scale = 0.75, .t = 3, .hyper = &hyper };
    const struct optimizer *o = NULL;
    struct error err;
    if (optimizer_find(&o, name, &err) == OK) device_optimizer_step(device, o, tensor[0], tensor[1], &tensor[2], step);
}

#define REDUCED(how) device_reduce(d, how, t[0].dtype, t[0].data, t[1].data, tensor_count(t[0]))
#define STEPPED STATISTIC(N * D), NUMBERS(N * D, 0)
#define ENTRIES(X)                                                                                                     \
    X(convert, to_the_format, (NUMBERS(N, D), STATISTIC(N * D)), device_convert(d, t[0], t[1]))                        \
    X(convert, to_fp32, (STATISTIC(N * D), NUMBERS(N, D)), device_convert(d, t[0], t[1]))                              \
    X(reduce, sum, (X_Y), REDUCED(SUM))                                                                                \
    X(reduce, product, (X_Y), REDUCED(PRODUCT))                                                                        \
    X(reduce, max, (X_Y), REDUCED(MAX))                                                                                \
    X(reduce, min, (X_Y), REDUCED(MIN))                                                                                \
    X(divide, by_three, (NUMBERS(N, D)), device_divide(d, t[0].dtype, t[0].data, tensor_count(t[0]), 3))               \
    X(exact_squares, of_one_tensor, (NUMBERS(N, D)), squares_exactly(d, t[0]))                                         \
    X(optimizer_step, sgd, (STEPPED), step_of(d, "sgd", t))                                                            \
    X(optimizer_step, momentum, (STEPPED, STATISTIC(N * D)), step_of(d, "momentum", t))                                \
    X(optimizer_step, adamw, (STEPPED, STATISTIC(N * D), STATISTIC(N * D)), step_of(d, "adamw", t))
