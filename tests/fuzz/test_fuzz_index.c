/* A model.safetensors.index.json from anybody: what is accepted leads every parameter it names to that parameter's
 * numbers.
 * tier: check
 *
 * The folder has a small model's weights, all of them in each of two files under the names of which half of the index
 * speaks.
 */
#include "ref/model/weights.h"
#include "tests/fuzz/fuzz.h"

static struct transformer model;
static double *room;

static void copy_file(const char *from, const char *name)
{
    static uint8_t bytes[1 << 16];
    FILE *f = fopen(from, "rb");
    must(f != NULL, "%s: cannot be read", from);
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    must(fgetc(f) == EOF, "%s: too long", from);
    fclose(f);
    as_file_named(name, bytes, n);
}

/* The model's weights as a.safetensors and b.safetensors; the file that would come before the index is gone. */
static void make_folder(void)
{
    struct error err;
    struct model_config c;
    int64_t batch;
    char whole[5000];
    must(model_config_preset(&c, &batch, "tiny", &err) == OK, "%s", err.text);
    c.L = 1, c.D = 4, c.H = 2, c.A = 2, c.F = 6, c.V = 5, c.S = 3, c.K = c.H;
    must(model_config_check(&c, &err) == OK && transformer_open(&model, &c, F64, 1, &err) == OK, "%s", err.text);
    must(weights_save(&model, fuzz_place(), &err) == OK, "%s", err.text);
    snprintf(whole, sizeof whole, "%s/model.safetensors", fuzz_place());
    copy_file(whole, "a.safetensors");
    copy_file(whole, "b.safetensors");
    unlink(whole);
    int64_t most = 0;
    for (int i = 0; i < model.params; i++) most = tensor_count(model.w[i]) > most ? tensor_count(model.w[i]) : most;
    room = malloc((size_t)most * sizeof *room);
    must(room != NULL, "no memory");
}

static void try(const uint8_t *data, size_t size)
{
    static const int64_t start[2] = { 0, 0 };
    struct weights w;
    struct error err = { 0 };
    if (room == NULL) make_folder();
    as_file_named("model.safetensors.index.json", data, size);
    if (weights_open(&w, fuzz_place(), &err) != OK) {
        must(err.text[0] != '\0', "refused without a word");
        return;
    }
    must(w.files >= 1 && w.files <= 2, "%d files of the two that are there", w.files);
    for (int i = 0; i < model.params; i++) {
        const int64_t n = tensor_count(model.w[i]);
        err.text[0] = '\0';
        if (weights_read_box(&w, &model.spec[i], "", start, model.spec[i].dim, F64, room, &err) != OK)
            must(err.text[0] != '\0', "refused without a word");
        else
            must(memcmp(room, model.w[i].data, (size_t)n * sizeof *room) == 0, "%s is read with other numbers",
                 model.spec[i].name);
    }
    weights_close(&w);
}

FUZZ_TARGET("index")
