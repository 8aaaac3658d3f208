/* tensors.c -- a safetensors file. */
#include "program.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tensors { char *header, *data; size_t used, room, bytes, space; };

struct tensors *tensors_new(void) { return calloc(1, sizeof(struct tensors)); }

static void grow(char **x, size_t *room, size_t need)
{
    if (need <= *room) return;
    *room = 2 * need;
    *x = realloc(*x, *room);
    if (*x == NULL) fprintf(stderr, "buggy: no memory\n"), exit(1);
}

void tensors_add(struct tensors *t, const char *name, const char *dtype, int ndim, const int dim[], const void *x,
                 size_t bytes)
{
    grow(&t->header, &t->room, t->used + 256), grow(&t->data, &t->space, t->bytes + bytes);
    t->used += (size_t)sprintf(t->header + t->used, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", name, dtype);
    for (int i = 0; i < ndim; i++) t->used += (size_t)sprintf(t->header + t->used, "%s%d", i ? "," : "", dim[i]);
    t->used += (size_t)sprintf(t->header + t->used, "],\"data_offsets\":[%zu,%zu]}", t->bytes, t->bytes + bytes);
    memcpy(t->data + t->bytes, x, bytes);
    t->bytes += bytes;
}

/* metadata: the inside of an object of strings. */
void tensors_write(struct tensors *t, const char *path, const char *metadata)
{
    FILE *f = fopen(path, "wb");
    const unsigned long long n = t->used + strlen(metadata) + strlen("{\"__metadata__\":{}}");
    if (f == NULL) fprintf(stderr, "buggy: cannot write %s\n", path), exit(1);
    fwrite(&n, 8, 1, f);                                /* little-endian */
    fprintf(f, "{\"__metadata__\":{%s}", metadata), fwrite(t->header, 1, t->used, f), fputc('}', f);
    fwrite(t->data, 1, t->bytes, f);
    if (fclose(f)) fprintf(stderr, "buggy: cannot write %s\n", path), exit(1);
    free(t->header), free(t->data), free(t);
}
