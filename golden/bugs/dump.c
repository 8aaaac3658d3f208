/* dump.c -- writes what each rank has: a folder of safetensors files, with the layout of each tensor in its metadata. */
#include "program.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct { struct tensors *file; char *layout; size_t used, room; } out[MOST_RANKS];

static void say(int r, const char *text)
{
    const size_t n = strlen(text);
    if (out[r].used + n + 1 > out[r].room) {
        out[r].room = 2 * (out[r].used + n + 1);
        out[r].layout = realloc(out[r].layout, out[r].room);
        if (out[r].layout == NULL) exit(1);
    }
    memcpy(out[r].layout + out[r].used, text, n + 1), out[r].used += n;
}

static void say_cut(int r, const char *key, const struct cut *c)
{
    char text[64];
    snprintf(text, sizeof text, "%s\\\"%s\\\":[", key ? "," : "", key ? key : "tp"), say(r, text);
    for (int i = 0, n; i < c->count; i += n) {
        for (n = 1; i + n < c->count && c->at[i + n] == c->at[i] + n;) n++;
        snprintf(text, sizeof text, "%s[%d,%d]", i ? "," : "", c->at[i], n), say(r, text);
    }
    say(r, "]");
}

/* The numbers as they lie in the file. */
static size_t encode(void *to, const float *x, size_t n, enum format f)
{
    uint16_t *half = to;
    if (f == FP32) return memcpy(to, x, n * sizeof *x), n * sizeof *x;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        half[i] = (uint16_t)(bits >> 16);               /* it has been rounded */
    }
    return n * 2;
}

/* The stage that has a tensor. */
static int stage_of(const char *name)
{
    const char *block = strstr(name, "h."), *llama = strstr(name, "layers.");
    if (llama) return atoi(llama + 7) * set.pp / m.L;
    if (block && block[2] >= '0' && block[2] <= '9') return atoi(block + 2) * set.pp / m.L;
    return strstr(name, "embed") || strstr(name, "wte") || strstr(name, "wpe") ? 0 : set.pp - 1;
}

void dump(int r, const char *name, const float *x, bool in_fp32, float times, struct place at)
{
    const int dim[2] = { at.row ? at.row->count : at.rows, at.col ? at.col->count : at.cols };
    const size_t n = (size_t)dim[0] * dim[1];
    /* fp16 is written in fp32, which has the same numbers */
    const enum format f = in_fp32 || set.format != BF16 ? FP32 : BF16;
    char text[512], key[256], full[160];
    const bool of_pass = strncmp(name, "act/", 4) == 0 || strncmp(name, "grad/", 5) == 0;
    if (set.resume && of_pass) snprintf(full, sizeof full, "%s/%d/%s", set.optimizer, set.resume + 1, name), name = full;
    r += ranks * (at.last_stage ? set.pp - 1 : stage_of(name));
    char micro[140];
    if (at.micro) snprintf(micro, sizeof micro, "%.120s#%d", name, at.micro - 1), name = micro;
    if (at.piece) snprintf(key, sizeof key, "%.120s%s%c", name, at.micro ? "." : "#", 'a' + at.piece - 1), name = key;
    void *data = malloc(n * sizeof(float));
    if (out[r].file == NULL) out[r].file = tensors_new();
    tensors_add(out[r].file, name, f == BF16 ? "BF16" : "F32", dim[1] > 1 ? 2 : 1, dim, data, encode(data, x, n, f));
    free(data);
    if (at.row == NULL && at.col == NULL && times == 1 && !at.partial && at.micro == 0 && at.piece == 0) return;
    snprintf(text, sizeof text, "%s\\\"%s\\\":{\\\"of\\\":[%d,%d],\\\"times\\\":%.9g", out[r].used ? "," : "", name, at.rows,
             at.cols, times);
    say(r, text);
    if (at.row) say_cut(r, "rows", at.row);
    if (at.col) say_cut(r, "cols", at.col);
    if (at.partial) say(r, ",\\\"partial\\\":[\\\"tp\\\"]");
    if (at.copies) say(r, ",\\\"partial\\\":{"), say_cut(r, NULL, at.copies), say(r, "}");
    if (at.micro) snprintf(text, sizeof text, ",\\\"micro\\\":%d", at.micro - 1), say(r, text);
    say(r, "}");
}

void dump_write(const char *folder)
{
    static const char *const words[] = { "fp32", "bf16", "fp16" };
    mkdir(folder, 0777);
    for (int r = ranks * set.pp; r < MOST_RANKS; r++) {                  /* of a run before */
        char path[1024];
        snprintf(path, sizeof path, "%s/rank%d.safetensors", folder, r), remove(path);
    }
    for (int r = 0; r < ranks * set.pp; r++) {
        char path[1024], head[256], *text = malloc(out[r].used + sizeof head + 64);
        snprintf(path, sizeof path, "%s/rank%d.safetensors", folder, r);
        snprintf(head, sizeof head, "\"orrery_dump\":\"1\",\"rank\":\"%d\",\"mesh\":\"{\\\"pp\\\":%d,\\\"dp\\\":%d,\\\"ep\\\":%d,\\\"tp\\\":%d}\",\"dtype\":\"%s\","
                 "\"program\":\"golden/bugs\",\"layout\":\"{", r, set.pp, set.dp / set.ep, set.ep, set.tp, words[set.format]);
        if (set.resume) sprintf(head + strlen(head) - strlen("\"layout\":\"{"), "\"begins\":\"%d\",\"layout\":\"{", set.resume);
        sprintf(text, "%s%s}\"", head, out[r].layout ? out[r].layout : "");
        tensors_write(out[r].file, path, text);
        free(text), free(out[r].layout);
    }
}
