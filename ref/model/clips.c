/* clips.c -- which sequences of a batch have which clips, and what is in them.  Files of verify/reference/, model/,
 * schemes/modality/ and ref/model/ call these functions.  The only error is ERR_MEMORY. */
#include "ref/model/modality.h"
#include "ref/model/transformer.h"
#include "ref/numeric/philox.h"
#include <stdlib.h>

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

/* Every fourth sequence is text only; of the others each has three of four clips. */
static bool has_clip(uint64_t seed, int64_t step, int64_t b, int modality, int kinds)
{
    if (b % 4 == 3 || modality_is_absent(modality, kinds, step)) return false;
    return clips_draw(seed, "clips", step, b * MODALITIES + modality, 4) > 0;
}

enum error_code clips_of_step(struct clips *clips, int kinds, uint64_t seed, int64_t step, int64_t B, int64_t S,
                              struct error *err)
{
    *clips = (struct clips){ .clip = calloc((size_t)(B * kinds + 1), sizeof *clips->clip) };
    if (clips->clip == NULL) return fail(err, ERR_MEMORY, "no memory for a batch's clips");
    for (int64_t b = 0; b < B; b++) {
        int64_t at = 1;                 /* a sequence begins with text */
        for (int m = 0; m < kinds; m++) {
            const int64_t number = b * MODALITIES + m, more = modalities[m].most - modalities[m].least + 1;
            const int64_t count = modalities[m].least + clips_draw(seed, "clips.count", step, number, more);
            /* Numbers are drawn for every place, so that a clip that is left out does not move the others' draws. */
            if (!has_clip(seed, step, b, m, kinds) || at + count >= S) continue;
            /* The next clip begins behind this one, after 0 to 2 tokens of text. */
            clips->clip[clips->count++] = (struct clip){ m, b * S + at, count, clips->patches };
            clips->patches += count, at += count + clips_draw(seed, "clips.gap", step, number, 3);
        }
    }
    return OK;
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
