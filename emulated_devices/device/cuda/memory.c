#include "emulated_devices/device/cuda/operands.h"
#include "emulated_devices/device/cuda/parts.h"
#include "ref/error_memory.h"
#include "ref/io/options.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct view {
    struct view *next;
    void *data;                         /* the device's */
    size_t bytes;
    bool writes;
    int users;                          /* who have not given it back */
    max_align_t shown[];
};

static struct cuda *of(struct device *d) { return d->state; }

/* Other processes may have memory of the GPU, too. */
static void say_what_is_full(void)
{
    size_t free_bytes = 0, bytes = 0;
    char text[400];
    (void)cudaMemGetInfo(&free_bytes, &bytes);
    snprintf(text, sizeof text, "GPU %d, %s: %s of %s free", gpu.number, gpu.name, size_format(free_bytes).text,
             size_format(bytes).text);
    error_names_memory(text);
}

void *gpu_allocate(struct device *d, size_t bytes)
{
    void *p = NULL;
    (void)d;
    if (cudaMalloc(&p, bytes) == cudaSuccess) return p;
    (void)cudaGetLastError();
    say_what_is_full();                         /* who asked for it says what it was for */
    return NULL;
}

void gpu_release(struct device *d, void *p, size_t bytes)
{
    (void)d, (void)bytes;
    must(cudaFree(p), "cudaFree");
}

/* A copy to memory that it reads goes through other memory. */
static void copy_overlapping(void *to, const void *from, size_t bytes)
{
    void *between = scratch(bytes);
    must(cudaMemcpy(between, from, bytes, cudaMemcpyDefault), "a copy");
    must(cudaMemcpy(to, between, bytes, cudaMemcpyDefault), "a copy");
}

void gpu_copy(struct device *d, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
              size_t rows)
{
    (void)d;
    if (width == 0 || rows == 0) return;
    if (!on_gpu(to) && !on_gpu(from))
        for (size_t r = 0; r < rows; r++)
            memmove((char *)to + r * to_pitch, (const char *)from + r * from_pitch, width);
    else if (rows > 1) must(cudaMemcpy2D(to, to_pitch, from, from_pitch, width, rows, cudaMemcpyDefault), "a copy");
    else if ((char *)to < (const char *)from + width && (const char *)from < (char *)to + width)
        copy_overlapping(to, from, width);
    else must(cudaMemcpy(to, from, width, cudaMemcpyDefault), "a copy");
}

/* Operands may be the same memory: both write into one view, or one would undo what the other wrote. */
static struct view *open_view(struct device *d, const void *data, size_t bytes)
{
    struct view *v = of(d)->views;
    while (v != NULL && !(v->writes && v->data == data && v->bytes == bytes)) v = v->next;
    return v;
}

static struct view *view(struct device *d, void *data, size_t bytes, bool writes)
{
    struct view *v = open_view(d, data, bytes);
    if (v != NULL) return v->users++, v;
    v = malloc(sizeof *v + bytes);
    if (v == NULL) fprintf(stderr, "orrery: no memory for a host view of %zu bytes\n", bytes), abort();
    *v = (struct view){ .next = of(d)->views, .data = data, .bytes = bytes, .writes = writes, .users = 1 };
    must(cudaMemcpy(v->shown, data, bytes, cudaMemcpyDeviceToHost), "a host view");
    return of(d)->views = v;
}

const void *gpu_read(struct device *d, const void *data, size_t bytes)
{
    return on_gpu(data) ? view(d, (void *)(uintptr_t)data, bytes, false)->shown : data;
}

void *gpu_write(struct device *d, void *data, size_t bytes)
{
    return on_gpu(data) ? view(d, data, bytes, true)->shown : data;
}

void gpu_view_done(struct device *d, const void *shown)
{
    struct view **at = &of(d)->views, *v;
    while ((v = *at) != NULL && (const void *)v->shown != shown) at = &v->next;
    if (v == NULL || --v->users > 0) return;                    /* NULL: the host's own memory */
    if (v->writes) must(cudaMemcpy(v->data, v->shown, v->bytes, cudaMemcpyHostToDevice), "a host view");
    *at = v->next;
    free(v);
}
