/* load.c -- opens the load of a mixture, and deals rows of the batch to experts.  run/words/take.c opens a load;
 * model/mixture.c and model/run/run_mixture.c deal; run/session.c writes choices to a file.  A file that does not
 * fit the model is ERR_FORMAT, a wrong S of zipf:S is ERR_USAGE.  Without memory the code is ERR_MEMORY.  After an
 * error of load_open there is nothing to close. */
#include "ref/model/load.h"
#include "ref/exact/scalars.h"
#include "ref/io/output.h"
#include "ref/io/safetensors.h"
#include "ref/model/config.h"
#include "ref/model/kinds.h"
#include "ref/numeric/permutation.h"
#include "ref/numeric/philox.h"
#include "ref/ops/ops.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The random streams of what is drawn: the order of ranks, and the choices. */
enum { LOAD_SEED = 0, LOAD_RANKS = 1, LOAD_CHOICES = 2 };
enum { ZIPF_UNIT = 1 << 30, ZIPF_MOST = 10 };   /* the weight of the first rank; the largest exponent */

/* ---- even -------------------------------------------------------------------------------------------------------- */

/* The expert at a place of the order in which experts are dealt.  Parts of neighbours get a place in turn; with groups,
 * first those of the first `kept` groups, then those of the next. */
static int32_t expert_dealt(const struct mixture_config *config, int64_t place)
{
    const int64_t columns = mixture_columns(config);
    const bool grouped = config->router.groups > 1;
    const int64_t parts = grouped ? config->router.groups : config->k, size = columns / parts,
                  kept = grouped ? config->router.kept : parts, begin = place / (kept * size) * kept;
    /* The columns that are left over are dealt last, in order. */
    if (place >= parts * size) return (int32_t)place;           /* k does not divide the columns */
    const int64_t wide = begin + kept <= parts ? kept : parts - begin, within = place - begin * size;
    return (int32_t)((begin + within % wide) * size + within / wide);
}

static void deal_even(const struct mixture_config *config, int64_t row, int32_t *choice)
{
    const int64_t columns = mixture_columns(config);
    for (int64_t i = 0; i < config->k; i++) choice[i] = expert_dealt(config, (row % columns * config->k + i) % columns);
}

/* ---- Zipf's law -------------------------------------------------------------------------------------------------- */

static enum error_code open_zipf(struct load *load, double exponent, const struct model_config *config,
                                 struct error *err)
{
    const int64_t columns = mixture_columns(&config->mixture);
    load->below = calloc((size_t)columns + 1, sizeof *load->below);
    load->expert = calloc((size_t)(config->L * columns) + 1, sizeof *load->expert);
    if (load->below == NULL || load->expert == NULL) return fail(err, ERR_MEMORY, "no memory for a load of experts");
    for (int64_t n = 0; n < columns; n++) {
        /* Whole numbers as weights: sums are exact, and the same on every machine. */
        const double weight = floor(ZIPF_UNIT * scalar_power((double)(n + 1), -exponent));
        load->below[n + 1] = load->below[n] + (weight > 1 ? (uint64_t)weight : 1);
    }
    /* Each layer has its own random order of ranks. */
    for (int64_t i = 0; i < config->L * columns; i++)
        load->expert[i] = (int32_t)permutation_item(i % columns, columns, LOAD_SEED, LOAD_RANKS,
                                                    (uint64_t)(i / columns));
    return OK;
}

static uint64_t load_weight_of(const struct load *load, int32_t rank)
{
    return load->below[rank + 1] - load->below[rank];
}

/* The rank in whose part of all weights a number is. */
static int32_t rank_at(const struct load *load, int64_t columns, uint64_t at)
{
    int64_t from = 0, to = columns;
    while (to - from > 1) {
        const int64_t middle = (from + to) / 2;
        if (load->below[middle] <= at) from = middle;
        else to = middle;
    }
    return (int32_t)from;
}

/* A number from 0 to below n, of 53 random bits. */
static uint64_t draw_below(uint64_t n, int64_t layer, int64_t row, int64_t i)
{
    const uint32_t counter[4] = { (uint32_t)row, (uint32_t)((uint64_t)row >> 32), (uint32_t)layer, (uint32_t)i },
                   key[2] = { LOAD_SEED, LOAD_CHOICES };
    uint32_t word[4];
    philox4x32(counter, key, word);
    /* The draw depends on row, layer and choice alone: any device can repeat it. */
    const uint64_t bits = (uint64_t)word[0] << 21 | word[1] >> 11;
    const uint64_t drawn = (uint64_t)((double)bits * 0x1p-53 * (double)n);
    return drawn < n ? drawn : n - 1;
}

/* Choices are ranks in ascending order while they are drawn: the weights of those before a number are passed over. */
static void deal_zipf(const struct load *load, const struct mixture_config *config, int64_t layer, int64_t row,
                      int32_t *choice)
{
    const int64_t columns = mixture_columns(config);
    uint64_t left = load->below[columns];
    for (int64_t i = 0; i < config->k; i++) {
        uint64_t at = draw_below(left, layer, row, i);
        int64_t place = 0;
        /* A drawn number counts only weights that are left: it skips those of earlier choices. */
        while (place < i && at >= load->below[choice[place]]) at += load_weight_of(load, choice[place++]);
        const int32_t rank = rank_at(load, columns, at);
        /* The ranks stay sorted. */
        memmove(choice + place + 1, choice + place, (size_t)(i - place) * sizeof *choice);
        choice[place] = rank, left -= load_weight_of(load, rank);
    }
    /* Ranks become experts in the layer's order. */
    for (int64_t i = 0; i < config->k; i++) choice[i] = load->expert[layer * columns + choice[i]];
}

/* ---- a file ------------------------------------------------------------------------------------------------------ */

/* Whether a token can have chosen so, after the choices before: fewer than k only by top-p, dropped ones only with a
 * capacity, which is of experts that compute. */
static bool is_choice(const struct mixture_config *config, const int32_t *choice, int64_t i)
{
    const int32_t made = choice_made(choice[i]);
    for (int64_t before = 0; before < i && made != CHOICE_NONE; before++)
        if (choice[before] == CHOICE_NONE || choice_made(choice[before]) == made) return false;
    if (made == CHOICE_NONE) return i > 0 && config->router.top_p > 0;
    return made >= 0 && made < mixture_columns(config)
           && (choice[i] >= 0 || (config->capacity_factor > 0 && made < config->E));
}

static enum error_code check_choices(const struct load *load, const struct model_config *config, struct error *err)
{
    const int64_t k = config->mixture.k, layer = load->rows * k;
    for (int64_t i = 0; i < load->steps * config->L * layer; i++) {
        if (layer_mlp(config, i / layer % config->L) != MLP_MIXTURE
            || is_choice(&config->mixture, load->choice + i - i % k, i % k)) continue;
        return fail(err, ERR_FORMAT, "choices: step %lld, layer %lld, row %lld: %d cannot be choice %lld of %lld among "
                    "%lld experts of this model", (long long)(i / layer / config->L),
                    (long long)(i / layer % config->L),
                    (long long)(i % layer / k), (int)load->choice[i], (long long)(i % k), (long long)k,
                    (long long)mixture_columns(&config->mixture));
    }
    return OK;
}

static enum error_code read_choices(struct load *load, const struct safetensors *file,
                                    const struct model_config *config, int64_t rows, struct error *err)
{
    const struct safetensors_entry *t = safetensors_find(file, "choices");
    if (t == NULL || t->ndim != 4 || t->dim[0] < 1)
        return fail(err, ERR_FORMAT, "%s: has no choices [steps, layers, rows, k], as --save-load writes them",
                    printable_path(file->path).text);
    if (t->dim[1] != config->L || t->dim[2] != rows || t->dim[3] != config->mixture.k)
        return fail(err, ERR_FORMAT, "%s: is of %lld layers, %lld rows of a batch and %lld experts a token, and this "
                    "run of %lld, %lld and %lld", printable_path(file->path).text, (long long)t->dim[1],
                    (long long)t->dim[2], (long long)t->dim[3], (long long)config->L, (long long)rows,
                    (long long)config->mixture.k);
    load->steps = t->dim[0], load->L = config->L, load->rows = rows;
    load->choice = calloc((size_t)t->count + 1, sizeof *load->choice);
    if (load->choice == NULL) return fail(err, ERR_MEMORY, "no memory for %lld choices", (long long)t->count);
    const enum error_code e = safetensors_read(file, t, I32, load->choice, err);
    return e ? e : check_choices(load, config, err);
}

static enum error_code load_open_file(struct load *load, const char *path, const struct model_config *config,
                                      int64_t rows, struct error *err)
{
    struct safetensors file;
    enum error_code e = safetensors_open(&file, path, err);
    if (e) return e;
    e = read_choices(load, &file, config, rows, err);
    safetensors_close(&file);
    return e;
}

enum error_code load_write(const char *path, const struct model_config *config, const int32_t *choice, int64_t steps,
                           int64_t rows, struct error *err)
{
    const struct safetensors_entry t = { .name = "choices", .dtype = "I32", .ndim = 4,
                                         .dim = { steps, config->L, rows, config->mixture.k } };
    struct safetensors_writer w;
    enum error_code e = safetensors_create(&w, path, &t, 1, NULL, 0, err);
    if (!e) e = safetensors_write(&w, 0, choice, err);
    return e ? e : safetensors_commit(&w, err);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

enum error_code load_open(struct load *load, const char *word, const struct model_config *config, int64_t rows,
                          struct error *err)
{
    static const char zipf[] = "zipf:";
    *load = (struct load){ .kind = LOAD_EVEN };
    enum error_code e = OK;
    if (strcmp(word, "even") == 0) return OK;
    if (strncmp(word, zipf, sizeof zipf - 1) == 0) {
        char *end;
        const double exponent = strtod(word + sizeof zipf - 1, &end);
        load->kind = LOAD_ZIPF;
        if (end == word + sizeof zipf - 1 || *end != '\0' || !(exponent >= 0 && exponent <= ZIPF_MOST))
            return fail(err, ERR_USAGE, "%s: S must be a number from 0, uniform, to %d", printable(word).text,
                        ZIPF_MOST);
        e = open_zipf(load, exponent, config, err);
    } else {
        load->kind = LOAD_FILE;
        e = load_open_file(load, word, config, rows, err);
    }
    if (e) load_close(load);
    return e;
}

void load_close(struct load *load)
{
    free(load->below), free(load->expert), free(load->choice);
    *load = (struct load){ .kind = LOAD_EVEN };
}

static void deal_row(const struct load *load, const struct model_config *config, int64_t step,
                     int64_t layer, int64_t row, int32_t *choice)
{
    const int64_t k = config->mixture.k;
    if (load == NULL || load->kind == LOAD_EVEN) deal_even(&config->mixture, row, choice);
    else if (load->kind == LOAD_ZIPF) deal_zipf(load, &config->mixture, layer, row, choice);
    else memcpy(choice, load->choice + ((step % load->steps * load->L + layer) * load->rows + row) * k,
                (size_t)k * sizeof *choice);
}

/* The choices that a sequence has dealt so far, and drops, of each expert that computes. */
struct sequence { int32_t *taken, *unread; int64_t capacity; };

static void drop_choices(const struct mixture_config *config, struct sequence *sequence, int32_t *choice)
{
    for (int64_t i = 0; i < config->k; i++)
        if (choice[i] >= 0 && choice[i] < config->E && sequence->taken[choice[i]]++ >= sequence->capacity)
            choice[i] = choice_dropped(choice[i]);
}

/* Rows of one sequence: those before them have taken their places first. */
static void deal_with_capacity(const struct load *load, const struct model_config *config, int64_t S, int64_t step,
                               int64_t layer, struct sequence *sequence, int64_t first, int64_t count, int32_t *choice)
{
    memset(sequence->taken, 0, (size_t)config->mixture.E * sizeof *sequence->taken);
    /* Rows of the sequence before `first` are dealt, too, only to count the places they take. */
    for (int64_t row = first - first % S; row < first + count; row++) {
        int32_t *const to = row < first ? sequence->unread : choice + (row - first) * config->mixture.k;
        deal_row(load, config, step, layer, row, to);
        drop_choices(&config->mixture, sequence, to);
    }
}

enum error_code load_deal(const struct load *load, const struct model_config *config, int64_t S, int64_t step,
                          int64_t layer, int64_t first, int64_t count, int32_t *choice, struct error *err)
{
    const struct mixture_config *m = &config->mixture;
    /* A file says itself which choices are dropped. */
    const bool drops = m->capacity_factor > 0 && !(load && load->kind == LOAD_FILE);
    /* Dealt evenly, rows repeat what as many rows before them as there are columns got. */
    const bool even = load == NULL || load->kind == LOAD_EVEN;
    const int64_t own = even && mixture_columns(m) < count ? mixture_columns(m) : count;
    for (int64_t i = 0; i < own && !drops; i++) deal_row(load, config, step, layer, first + i, choice + i * m->k);
    for (int64_t i = own, n; i < count && !drops; i += n) {
        n = i < count - i ? i : count - i;
        memcpy(choice + i * m->k, choice + i % own * m->k, (size_t)(n * m->k) * sizeof *choice);
    }
    if (!drops) return OK;
    int32_t *const room = malloc((size_t)(m->E + m->k) * sizeof *room);
    if (room == NULL) return fail(err, ERR_MEMORY, "no memory to deal rows to %lld experts", (long long)m->E);
    struct sequence s = { room, room + m->E, mixture_capacity(m, S) };
    for (int64_t done = 0, n; done < count; done += n) {
        /* Sequence by sequence: each has a capacity of its own. */
        const int64_t row = first + done, rest = S - row % S;
        n = rest < count - done ? rest : count - done;
        deal_with_capacity(load, config, S, step, layer, &s, row, n, choice + done * m->k);
    }
    free(room);
    return OK;
}

bool load_count(const struct load *load, const struct model_config *config, int64_t first, int64_t count,
                int32_t *of_column)
{
    const struct mixture_config *m = &config->mixture;
    const int64_t columns = mixture_columns(m);
    if ((load && load->kind != LOAD_EVEN) || m->capacity_factor > 0) return false;
    /* As many rows as there are columns choose each column k times; only what is left over is dealt. */
    for (int64_t e = 0; e < columns; e++) of_column[e] += (int32_t)(count / columns * m->k);
    for (int64_t row = first; row < first + count % columns; row++)
        for (int64_t i = 0; i < m->k; i++) of_column[expert_dealt(m, (row % columns * m->k + i) % columns)]++;
    return true;
}
