/* tokenize.c -- `orrery tokenize`: texts as the tokens of a model's own tokenizer, to look at or for a file.  main.c
 * calls command_tokenize().  ERR_USAGE is for flags that do not go together; other errors are the tokenizer's, and
 * ERR_MEMORY. */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/train/data/data_words.h"
#include "ref/machine/measure.h"
#include "ref/io/document.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/text/token_file.h"
#include "ref/text/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MOST = 1 << 30, SHOWN = 40 };

struct tokenize_options {
    const char *tokenizer, *file, *text, *out, *layout, *decode;
    bool special, limits;
};

static enum error_code print_tokens(const struct tokenizer *tokenizer, const struct token_ids *ids, struct error *err)
{
    for (int64_t i = 0; i < ids->count; i++) printf("%s%d", i ? " " : "", (int)ids->id[i]);
    printf("\n");
    for (int64_t i = 0; i < ids->count && i < SHOWN; i++) {
        char *text;
        size_t bytes;
        const enum error_code e = tokenizer_decode_begun(tokenizer, &ids->id[i], 1, true, &text, &bytes, err);
        if (e) return e;
        printf("%8d  ", (int)ids->id[i]);
        for (size_t b = 0; b < bytes; b++) {
            const unsigned char c = (unsigned char)text[b];
            if (c < 32 || c == 127) printf("\\x%02x", c);
            else putchar(c);
        }
        printf("\n");
        free(text);
    }
    if (ids->count > SHOWN) printf("          and %lld more\n", (long long)ids->count - SHOWN);
    return OK;
}

static void add_summary(size_t bytes, const struct token_ids *ids, int64_t wrong, double seconds)
{
    struct cJSON *data = document_data();
    if (data == NULL) return;
    cJSON_AddItemToObject(data, "ids", cJSON_CreateIntArray(ids->id, (int)ids->count));
    json_add(data, "bytes %g replaced %g seconds %g", (double)bytes, (double)wrong, seconds);
}

static enum error_code tokenize_encode(struct tokenizer *tokenizer, const struct tokenize_options *options,
                                       const char *text, size_t bytes, struct error *err)
{
    struct token_ids ids = { 0 };
    int64_t wrong;
    const double began = measure_now();
    enum error_code e = tokenizer_encode(tokenizer, text, bytes, options->special, &ids, &wrong, err);
    const double seconds = measure_now() - began;
    if (!e && wrong)
        fprintf(stderr, "orrery: %lld places are no UTF-8, and are read as U+FFFD\n", (long long)wrong);
    if (!e && options->out)
        e = token_file_write(options->out, options->layout, &ids, tokenizer_vocabulary(tokenizer), err);
    if (!e && !options->out) e = print_tokens(tokenizer, &ids, err);
    const bool alone = token_width_named(options->layout) != TOKENS_AS_FOUND;
    if (!e && options->out)
        printf("%zu bytes are %lld tokens, %.2f bytes each; %s%s%s%s%s\n", bytes, (long long)ids.count,
               ids.count ? (double)bytes / (double)ids.count : 0, byte_rate_format((double)bytes / seconds).text,
               alone ? "; read it as " : "", alone ? printable_path(options->out).text : "", alone ? ":" : "",
               alone ? options->layout : "");
    if (!e && !options->out) add_summary(bytes, &ids, wrong, seconds);
    token_ids_free(&ids);
    return e;
}

/* Nobody wants a corpus that is cut without a word; who knows the file may expect a cut, so this is said. */
static void apply_limits(struct tokenizer *tokenizer, const struct tokenize_options *options)
{
    const char *limits = tokenizer_limits(tokenizer);
    tokenizer_obey_limits(tokenizer, options->limits);
    if (limits && !options->limits)
        fprintf(stderr, "orrery: the text stays whole: %s of the tokenizer's file need --limits\n", limits);
}

/* Numbers with blanks or commas between them. */
static enum error_code read_ids(struct token_ids *ids, const char *words, struct error *err)
{
    enum error_code e = OK;
    for (const char *at = words; !e && *(at += strspn(at, " ,\n\t"));) {
        char *end;
        const long id = strtol(at, &end, 10);
        if (end == at || (*end && strchr(" ,\n\t", *end) == NULL) || id < 0 || id > INT32_MAX)
            e = fail(err, ERR_USAGE, "--decode %s: must be numbers of tokens, such as \"15496 995\"",
                     printable(words).text);
        else if (!token_ids_add(ids, (int32_t)id)) e = fail(err, ERR_MEMORY, "no memory for the tokens");
        at = end;
    }
    return e;
}

/* All tokens of a file.  The tokenizer says later which of them is none. */
static enum error_code tokenize_read_file(struct token_ids *ids, const struct data_word *word, struct error *err)
{
    struct token_file file;
    enum error_code e = token_file_open(&file, word->path, word->width, err);
    if (e) return e;
    for (int64_t i = 0; i < file.count && !e; i++)
        if (!token_ids_add(ids, token_file_get(&file, i))) e = fail(err, ERR_MEMORY, "no memory for the tokens");
    token_file_close(&file);
    return e;
}

/* The name of one file of tokens, with a width or without; else numbers. */
static enum error_code read_tokens(struct token_ids *ids, const char *words, struct error *err)
{
    struct data_words names;
    enum error_code e = data_words_read(&names, words, err);
    if (e == ERR_MEMORY) return e;
    const bool file = !e && names.count == 1 && !names.word[0].weight && data_word_is_tokens(&names.word[0]);
    e = file ? fail_about(err, tokenize_read_file(ids, &names.word[0], err), "--decode")
             : read_ids(ids, words, err);
    data_words_free(&names);
    return e;
}

static enum error_code decode(struct tokenizer *tokenizer, const char *words, bool special, struct error *err)
{
    struct token_ids ids = { 0 };
    char *text = NULL;
    size_t bytes;
    enum error_code e = read_tokens(&ids, words, err);
    if (!e) e = fail_about(err, tokenizer_decode(tokenizer, ids.id, ids.count, special, &text, &bytes,
                                                 err), "--decode");
    if (!e) fwrite(text, 1, bytes, stdout), printf("\n");
    free(text);
    token_ids_free(&ids);
    return e;
}

static enum error_code work(const struct tokenize_options *options, struct error *err)
{
    struct tokenizer *t;
    char *read = NULL;
    size_t bytes = options->text ? strlen(options->text) : 0;
    enum error_code e = fail_about(err, tokenizer_open(&t, options->tokenizer, err), "--tokenizer");
    if (e) return e;
    if (options->decode) e = decode(t, options->decode, options->special, err);
    else {
        apply_limits(t, options);
        if (options->file) e = file_read_all(options->file, TEXT_MOST, &read, &bytes, err);
        if (!e) e = tokenize_encode(t, options, read ? read : options->text, bytes, err);
    }
    free(read);
    tokenizer_close(t);
    return e;
}

enum error_code command_tokenize(int argc, char **argv, int *status, struct error *err)
{
    struct tokenize_options o = { .layout = token_layouts[0] };
    bool help;
    (void)status;
    const struct option table[] = {
        { "FILE", NULL, OPTION_STRING, &o.file, .help = "the text" },
        { "--tokenizer", "PATH", OPTION_STRING, &o.tokenizer,
          .help = "a tokenizer.json, or the folder of a model that has one" },
        { "--text", "TEXT", OPTION_STRING, &o.text, .help = "a text on the command line, instead of FILE" },
        { "--special", NULL, OPTION_SWITCH, &o.special,
          .help = "add the tokens that the tokenizer puts around a text; with --decode, print special tokens, too" },
        { "--limits", NULL, OPTION_SWITCH, &o.limits,
          .help = "cut and pad as truncation and padding of the tokenizer's file say; else texts stay whole" },
        { "--out", "FILE", OPTION_STRING, &o.out, .help = "write the tokens to a file; default: print them" },
        { "--layout", "NAME", OPTION_CHOICE, &o.layout, .choices = token_layouts,
          .help = "layout of --out: nanogpt has numbers of 16 bits alone, i32 and u32 numbers of 32 bits alone, llmc "
                  "a head before numbers of 16 or 32 bits, megatron an index beside them, NAME.idx" },
        { "--decode", "IDS|FILE", OPTION_STRING, &o.decode,
          .help = "print the text of these tokens, such as \"15496 995\", or of a file of them, such as plays.bin or "
                  "plays.bin:i32" },
        { 0 }
    };
    const enum error_code e = parse_command(
        "tokenize", "[FILE] [options]",
        "Texts to tokens, and back, by a model's own tokenizer.json, as Hugging Face's library `tokenizers`\n"
        "reads the file.  Steps of the file that are not known are refused by name.", argc - 2, argv + 2, table, &help,
        err);
    if (e || help) return e;
    if (o.tokenizer == NULL) return fail(err, ERR_USAGE, "tokenize: needs --tokenizer PATH, a tokenizer.json");
    if ((o.file != NULL) + (o.text != NULL) + (o.decode != NULL) != 1)
        return fail(err, ERR_USAGE, "tokenize: needs one of FILE, --text and --decode");
    if (o.decode && o.limits) return fail(err, ERR_USAGE, "--limits: is for texts, not for the tokens of --decode");
    if (o.decode && o.out) return fail(err, ERR_USAGE, "--out: is for tokens, not for the text of --decode");
    return work(&o, err);
}
