/* The manifest of a sharded checkpoint from anybody: one that is accepted has boxes that lie in their tensors, and as
 * many elements as the tensors have.
 * tier: check
 */
#include "emulated_devices/model/checkpoint/sharded/sharded.h"
#include "tests/fuzz/fuzz.h"

/* The boxes of a tensor are in its dimensions and in files that there are. */
static void look(const struct manifest *manifest, const struct shard_tensor *tensor)
{
    int64_t whole = 1, boxes = 0;
    must(tensor->ndim >= 0 && tensor->ndim <= TENSOR_MAX_DIMS, "%d dimensions", tensor->ndim);
    for (int d = 0; d < tensor->ndim; d++) whole *= tensor->dim[d];
    for (int b = 0; b < tensor->boxes; b++) {
        const struct shard_box *const box = &tensor->box[b];
        int64_t elements = 1;
        must(box->file >= 0 && box->file < manifest->files, "a box in file %d of %d", box->file, manifest->files);
        for (int d = 0; d < tensor->ndim; d++) {
            must(box->box.start[d] >= 0 && box->box.extent[d] >= 0
                 && box->box.start[d] + box->box.extent[d] <= tensor->dim[d], "a box outside of its tensor");
            elements *= box->box.extent[d];
        }
        boxes += elements;
    }
    must(boxes == whole, "%lld elements in boxes, %lld in the tensor", (long long)boxes, (long long)whole);
}

static void try(const uint8_t *data, size_t size)
{
    struct bundle b = { .kind = &sharded_files, .dir = fuzz_place() };
    struct manifest m;
    struct error err = { 0 };
    as_file_named(SHARDS_FILE, data, size);
    for (int i = 0; sharded_files.name[i]; i++)
        if (strcmp(sharded_files.name[i], SHARDS_FILE) == 0) b.sum[i] = sha256_of(data, size);
    if (manifest_read(&m, &b, SHARDS_FILE, &err) != OK) must(err.text[0] != '\0', "refused without a word");
    else {
        for (int t = 0; t < m.tensors; t++) look(&m, &m.tensor[t]);
        for (int t = 0; t < m.tensors; t++) must(manifest_find(&m, m.tensor[t].name) == &m.tensor[t], "not found");
    }
    manifest_close(&m);
}

FUZZ_TARGET("shards")
