/* clips.c -- which sequences of a batch have which clips, and what is in them.  Files of verify/reference/, model/,
 * schemes/modality/ and ref/model/ call these functions.  The only error is ERR_MEMORY. */
#include "ref/model/modality.h"
#include "ref/model/sample_mask.h"
#include "ref/model/transformer.h"
#include "ref/numeric/philox.h"
#include <stdlib.h>
#include <string.h>

const struct modality modalities[MODALITIES] = {
    { "image", .C = 12, .F = 20, .least = 3, .most = 5 },
    { "audio", .C = 5, .F = 9, .least = 1, .most = 3 },
    { "video", .C = 7, .F = 16, .least = 2, .most = 6 },
};

bool modality_is_absent(int modality, int kinds, int64_t step) { return (step + modality) % (kinds + 1) == kinds; }

/* A whole number from 0 to below `below`. */
static int64_t clips_draw(uint64_t seed, const char *what, int64_t step, int64_t index, int64_t below)
{
    return (int64_t)(random_uniform(seed, random_stream(what) + (uint64_t)step, (uint64_t)index) * (double)below);
}

int modality_find(const char *name, size_t letters)
{
    int m = MODALITIES - 1;
    while (m >= 0 && (strlen(modalities[m].name) != letters || strncmp(modalities[m].name, name, letters) != 0)) m--;
    return m;
}

/* Every fourth sample is text only; of the others each has three of four clips. */
static bool has_clip(uint64_t seed, int64_t step, int64_t sample, int modality, int kinds)
{
    if (sample % 4 == 3 || modality_is_absent(modality, kinds, step)) return false;
    return clips_draw(seed, "clips", step, sample * MODALITIES + modality, 4) > 0;
}

static void put_clip(struct clips *clips, int modality, int64_t row, int64_t count)
{
    clips->clip[clips->count++] = (struct clip){ modality, row, count, clips->patches };
    clips->patches += count;
}

/* The clips of one sample, in rows `first` to before `end` of the batch. */
static void clip_sample(struct clips *clips, int kinds, unsigned only, uint64_t seed, int64_t step, int64_t sample,
                        int64_t first, int64_t end)
{
    int64_t at = first + 1;             /* a sample begins with text */
    for (int m = 0; m < kinds; m++) {
        const int64_t number = sample * MODALITIES + m, more = modalities[m].most - modalities[m].least + 1;
        const int64_t count = modalities[m].least + clips_draw(seed, "clips.count", step, number, more);
        /* Numbers are drawn for every place, so that a clip that is left out does not move the others' draws. */
        if (only && !(only >> m & 1)) continue;
        if (!has_clip(seed, step, sample, m, kinds) || at + count >= end) continue;
        put_clip(clips, m, at, count);
        /* The next clip begins behind this one, after 0 to 2 tokens of text. */
        at += count + clips_draw(seed, "clips.gap", step, number, 3);
    }
}

/* The row behind the sample that begins at this row. */
static int64_t sample_end(const int32_t *within, int64_t row, int64_t S)
{
    const int64_t end = (row / S + 1) * S;
    for (row++; within && row < end; row++)
        if (sample_position(within[row]) == 0) return row;
    return end;
}

static enum error_code clips_open(struct clips *clips, int64_t most, struct error *err)
{
    *clips = (struct clips){ .clip = calloc((size_t)most + 1, sizeof *clips->clip) };
    return clips->clip ? OK : fail(err, ERR_MEMORY, "no memory for a batch's clips");
}

enum error_code clips_of_step(struct clips *clips, int kinds, unsigned only, uint64_t seed, int64_t step, int64_t B,
                              int64_t S, const int32_t *within, struct error *err)
{
    int64_t samples = 0;
    for (int64_t row = 0; row < B * S; row = sample_end(within, row, S)) samples++;
    const enum error_code e = clips_open(clips, samples * kinds, err);
    for (int64_t row = 0, sample = 0, end; row < B * S && !e; row = end) {
        end = sample_end(within, row, S);
        if (within == NULL || !is_padding(within[row]))
            clip_sample(clips, kinds, only, seed, step, sample++, row, end);
    }
    return e;
}

enum error_code clips_of_tokens(struct clips *clips, int64_t B, int64_t S, const int32_t *ids, struct error *err)
{
    const enum error_code e = clips_open(clips, B * S, err);
    for (int64_t row = 0, end; row < B * S && !e; row = end) {
        for (end = row + 1; end < B * S && ids[end] == ids[row] && ids[row] < 0; end++) {}
        if (ids[row] < 0) put_clip(clips, -1 - ids[row], row, end - row);
    }
    return e;
}

void clips_free(struct clips *clips)
{
    free(clips->clip);
    *clips = (struct clips){ 0 };
}

void clip_draw(const struct clip *clip, uint64_t seed, int64_t step, struct tensor x)
{
    const uint64_t stream = random_stream(modalities[clip->modality].name) + (uint64_t)step;
    const int64_t C = modalities[clip->modality].C;
    for (int64_t i = 0; i < clip->count * C; i++)
        tensor_set(x, i, random_normal(seed, stream, (uint64_t)(clip->first * C + i)));
}

void clips_mark(const struct clips *clips, int64_t first, int64_t rows, int32_t *ids, int32_t *labels)
{
    for (int i = 0; i < clips->count; i++)
        /* No token from the one before the clip to its last patch predicts a token. */
        for (int64_t row = clips->clip[i].row - 1; row < clips->clip[i].row + clips->clip[i].count; row++) {
            if (row < first || row >= first + rows) continue;
            labels[row - first] = IGNORE_LABEL;
            if (row >= clips->clip[i].row) ids[row - first] = 0;
        }
}
