/* sizes.c -- gives a preset other sizes: `--model llama3-8b:L=16,D=2048,..`.  config.c calls model_config_resize for
 * the words after the colon.  ERR_USAGE names the letter that is wrong; whether the sizes fit each other,
 * model_config_check says later. */
#include "ref/model/config.h"
#include "ref/io/output.h"
#include "ref/model/kinds.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A letter of docs/words.md, and where its number is. */
struct size_letter { char letter; int64_t *number; bool given; };

enum { SIZE_LETTERS = 10, SIZE_MOST = 1 << 24 };

static void size_letters(struct size_letter letters[SIZE_LETTERS], struct model_config *config)
{
    int64_t *const numbers[SIZE_LETTERS] = { &config->L, &config->D, &config->H, &config->K, &config->A, &config->F,
                                             &config->V, &config->S, &config->mixture.E, &config->mixture.k };
    for (int i = 0; i < SIZE_LETTERS; i++)
        letters[i] = (struct size_letter){ MODEL_SIZE_LETTERS[i], numbers[i], false };
}

static enum error_code size_refuse(const char *word, const char *why, struct error *err)
{
    return fail(err, ERR_USAGE, "--model %s: %s", printable(word).text, why);
}

/* Read LETTER=NUMBER at *text, and pass it.  Letters E and k are of mixtures alone. */
static enum error_code size_read(const char **text, struct size_letter letters[SIZE_LETTERS], bool mixture,
                                 const char *word, struct error *err)
{
    const char *const at = **text ? strchr(MODEL_SIZE_LETTERS, **text) : NULL;
    if (at == NULL || (*text)[1] != '=')
        return size_refuse(word, "after the preset must stand sizes such as :L=32,D=4096, of the letters "
                           MODEL_SIZE_LETTERS, err);
    struct size_letter *const l = &letters[at - MODEL_SIZE_LETTERS];
    if (l->given) return size_refuse(word, "a letter stands there twice", err);
    if ((l->letter == 'E' || l->letter == 'k') && !mixture)
        return size_refuse(word, "E and k are of mixtures, and the preset has no experts", err);
    char *end;
    const long long number = strtoll(*text + 2, &end, 10);
    const bool digits = (*text)[2] >= '0' && (*text)[2] <= '9';
    if (!digits || number < 1 || number > SIZE_MOST || (*end != ',' && *end != '\0'))
        return size_refuse(word, "a size must be a whole number from 1 to 16777216", err);
    *l->number = number, l->given = true;
    *text = *end == ',' ? end + 1 : end;
    return *end == ',' && **text == '\0' ? size_refuse(word, "the last comma has no size behind it", err) : OK;
}

enum error_code model_config_resize(struct model_config *config, const char *sizes, const char *word,
                                    struct error *err)
{
    struct size_letter letters[SIZE_LETTERS];
    const struct model_config before = *config;
    enum error_code e = *sizes ? OK : size_refuse(word, "the colon has no sizes behind it", err);
    size_letters(letters, config);
    while (!e && *sizes) e = size_read(&sizes, letters, config->mlp == MLP_MIXTURE, word, err);
    if (e) return e;
    /* Heads that the word does not give follow the preset's: one key head a query head, D / H numbers a head. */
    if (!letters[3].given && before.K == before.H) config->K = config->H;
    if (!letters[4].given && before.A * before.H == before.D) config->A = config->D / config->H;
    if (!letters[4].given && before.A * before.H == before.D && config->A * config->H != config->D)
        return size_refuse(word, "H does not divide D; A=N says how wide a head is", err);
    snprintf(config->name, sizeof config->name, "%.63s", word);
    return OK;
}
