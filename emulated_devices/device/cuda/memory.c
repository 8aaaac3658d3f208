/* memory.c -- memory of the GPU: blocks that are kept for the next request, copies, and host views.
 *
 * backend.c has these functions as its entries; operations.c takes copies of operands here.  NULL means that the GPU
 * is full, and the error's text then says how much is free.  Other errors end the program.
 */
#include "emulated_devices/device/cuda/operands.h"
#include "emulated_devices/device/cuda/parts.h"
#include "ref/error_memory.h"
#include "ref/io/figures.h"
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

static struct cuda *memory_of(struct device *device) { return device->state; }

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

/* ---- whose memory an address is of ------------------------------------------------------------------------------- */

/* Blocks of cudaMalloc are listed by address, because asking the runtime takes longer than many an operation. */
struct block { char *at; size_t bytes; };
static struct { struct block *of; int count, room; } blocks;

/* The number of blocks that begin at or before an address. */
static int blocks_before(const void *p)
{
    int low = 0, high = blocks.count;
    while (low < high) {
        const int middle = (low + high) / 2;
        if ((const char *)p < blocks.of[middle].at) high = middle;
        else low = middle + 1;
    }
    return low;
}

static bool in_block(const void *p)
{
    const int i = blocks_before(p) - 1;
    return i >= 0 && (const char *)p < blocks.of[i].at + blocks.of[i].bytes;
}

/* Note a block of cudaMalloc in the list.  If the list has no memory, on_gpu asks the runtime instead. */
static void note_block(void *p, size_t bytes)
{
    const int room = blocks.room > 0 ? 2 * blocks.room : 256;
    struct block *more = blocks.count < blocks.room ? blocks.of : realloc(blocks.of, sizeof *more * (size_t)room);
    if (more == NULL) return;
    if (blocks.count == blocks.room) blocks.room = room;
    blocks.of = more;
    const int i = blocks_before(p);
    memmove(&more[i + 1], &more[i], sizeof *more * (size_t)(blocks.count - i));
    more[i] = (struct block){ p, bytes };
    blocks.count++;
}

static void forget_block(const void *p)
{
    const int i = blocks_before(p) - 1;
    if (i < 0 || blocks.of[i].at != p) return;
    blocks.count--;
    memmove(&blocks.of[i], &blocks.of[i + 1], sizeof *blocks.of * (size_t)(blocks.count - i));
}

/* The list answers for our own blocks; the runtime answers for all other addresses. */
bool on_gpu(const void *p)
{
    struct cudaPointerAttributes a;
    if (in_block(p)) return true;
    must(cudaPointerGetAttributes(&a, p), "cudaPointerGetAttributes");
    return a.type == cudaMemoryTypeDevice || a.type == cudaMemoryTypeManaged;
}

/* ---- allocations ------------------------------------------------------------------------------------------------- */

/* Blocks that were given back, the last one last; and how much there was in use at once. */
enum { IDLE_MOST = 1024 };
static struct { struct block of[IDLE_MOST]; int count; size_t bytes, used, most_used; } idle;

bool gpu_keeps_memory(void)
{
#ifdef CUDA_EMULATED
    if (emulated_is_watched()) return false;
#endif
    const char *said = getenv("ORRERY_GPU_KEEPS");
    return said == NULL || strcmp(said, "0") != 0;
}

/* The list forgets a block before the runtime may give its address to another. */
static void free_block(struct block block)
{
    forget_block(block.at);
    must(cudaFree(block.at), "cudaFree");
}

/* Take idle block i out of the list, in which the last one given back is last. */
static struct block take_idle(int i)
{
    const struct block b = idle.of[i];
    idle.count--;
    idle.bytes -= b.bytes;
    memmove(&idle.of[i], &idle.of[i + 1], sizeof b * (size_t)(idle.count - i));
    return b;
}

/* Memory from the runtime.  If there is none, all idle blocks are freed, and one more call decides. */
static void *memory_allocate(size_t bytes)
{
    void *p = NULL;
    if (cudaMalloc(&p, bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        /* Without idle blocks the GPU is full; else they are all freed, and it is tried once more. */
        if (idle.count == 0) return NULL;
        while (idle.count > 0) free_block(take_idle(idle.count - 1));
        return memory_allocate(bytes);
    }
    note_block(p, bytes);
    return p;
}

/* Idle blocks of exactly this size come first, since sizes repeat from step to step. */
void *memory_take(size_t bytes)
{
    int i = idle.count - 1;
    /* The block that was given back last is taken first. */
    while (i >= 0 && idle.of[i].bytes != bytes) i--;
    void *p = i >= 0 ? take_idle(i).at : memory_allocate(bytes);
    if (p != NULL) idle.used += bytes;
    if (idle.used > idle.most_used) idle.most_used = idle.used;
    return p;
}

/* No more is kept than was in use at once. */
void memory_give(void *p, size_t bytes)
{
    if (p == NULL) return;
    idle.used -= bytes;
    if (!gpu_keeps_memory()) return free_block((struct block){ p, bytes });
    /* The oldest idle blocks are freed first. */
    while (idle.count > 0 && (idle.count == IDLE_MOST || idle.bytes + bytes > idle.most_used)) free_block(take_idle(0));
    idle.of[idle.count++] = (struct block){ p, bytes };
    idle.bytes += bytes;
}

void memory_end(void)
{
    while (idle.count > 0) free_block(take_idle(idle.count - 1));
    free(blocks.of);
    memset(&blocks, 0, sizeof blocks);
}

void *gpu_allocate(struct device *device, size_t bytes)
{
    (void)device;
    void *p = memory_take(bytes);
    if (p == NULL) say_what_is_full();          /* who asked for it says what it was for */
    return p;
}

void gpu_release(struct device *device, void *p, size_t bytes)
{
    (void)device;
    memory_give(p, bytes);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* A copy whose destination overlaps its source goes through the scratch memory. */
static void copy_overlapping(void *to, const void *from, size_t bytes)
{
    void *between = scratch(bytes);
    must(cudaMemcpy(between, from, bytes, cudaMemcpyDefault), "a copy");
    must(cudaMemcpy(to, between, bytes, cudaMemcpyDefault), "a copy");
}

void gpu_copy(struct device *device, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
              size_t rows)
{
    (void)device;
    if (width == 0 || rows == 0) return;
    /* Between two places of the host no GPU is needed. */
    if (!on_gpu(to) && !on_gpu(from))
        for (size_t r = 0; r < rows; r++)
            memmove((char *)to + r * to_pitch, (const char *)from + r * from_pitch, width);
    else if (rows > 1) must(cudaMemcpy2D(to, to_pitch, from, from_pitch, width, rows, cudaMemcpyDefault), "a copy");
    else if ((char *)to < (const char *)from + width && (const char *)from < (char *)to + width)
        copy_overlapping(to, from, width);
    else must(cudaMemcpy(to, from, width, cudaMemcpyDefault), "a copy");
}

#ifndef CUDA_EMULATED
#define emulated_show(to, from, bytes) cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost)
#endif

/* ---- host views -------------------------------------------------------------------------------------------------- */

/* Operands may be the same memory: both write into one view, or one would undo what the other wrote. */
static struct view *open_view(struct device *device, const void *data, size_t bytes)
{
    struct view *v = memory_of(device)->views;
    while (v != NULL && !(v->writes && v->data == data && v->bytes == bytes)) v = v->next;
    return v;
}

/* A view is a copy in the host's memory; a second one for writing the same bytes is the first. */
static struct view *view(struct device *device, void *data, size_t bytes, bool writes)
{
    struct view *v = open_view(device, data, bytes);
    if (v != NULL) return v->users++, v;
    v = malloc(sizeof *v + bytes);
    if (v == NULL) fprintf(stderr, "orrery: no memory for a host view of %zu bytes\n", bytes), abort();
    *v = (struct view){ .next = memory_of(device)->views, .data = data, .bytes = bytes, .writes = writes, .users = 1 };
    must(emulated_show(v->shown, data, bytes), "a host view");
    return memory_of(device)->views = v;
}

const void *gpu_read(struct device *device, const void *data, size_t bytes)
{
    return on_gpu(data) ? view(device, (void *)(uintptr_t)data, bytes, false)->shown : data;
}

void *gpu_write(struct device *device, void *data, size_t bytes)
{
    return on_gpu(data) ? view(device, data, bytes, true)->shown : data;
}

/* A view for writing goes back when its last user is done. */
void gpu_view_done(struct device *device, const void *shown)
{
    struct view **at = &memory_of(device)->views, *v;
    while ((v = *at) != NULL && (const void *)v->shown != shown) at = &v->next;
    if (v == NULL || --v->users > 0) return;                    /* NULL: the host's own memory */
    if (v->writes) must(cudaMemcpy(v->data, v->shown, v->bytes, cudaMemcpyHostToDevice), "a host view");
    *at = v->next;
    free(v);
}

#ifdef CUDA_EMULATED
void emulated_product_writes(void *C, size_t pitch, size_t width, size_t rows);          /* tells a judge */
#else
#define emulated_product_writes(C, pitch, width, rows) ((void)(bytes))
#endif

/* A library does not know our stream. */
void *gpu_direct(struct device *device, void *data, size_t bytes, bool writes)
{
    (void)device;
    if (bytes == 0 || !on_gpu(data)) return data;
    must(cudaStreamSynchronize(NULL), "a message");
    if (writes) emulated_product_writes(data, 0, bytes, 1);
    return data;
}
