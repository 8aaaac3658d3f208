#include "emulated_devices/model/memory.h"

struct tensor allocate_matrix(struct allocator *a, int64_t rows, int64_t cols)
{
    struct tensor t = device_tensor_2d(a->device, a->tag, rows, cols);
    a->failed = a->failed || t.data == NULL;
    return t;
}

struct tensor allocate_statistics(struct allocator *a, int64_t rows, int64_t cols)
{
    struct tensor t = device_statistics(a->device, a->tag, rows, cols);
    a->failed = a->failed || t.data == NULL;
    return t;
}

void drop_tensors(struct device *d, struct tensor *const all[], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        device_free(d, *all[i]);
        *all[i] = tensor_none;
    }
}
