/* saves.c -- what saving a checkpoint costs a training, from a model's size, a step's parts and rates.
 *
 * A claim is a published number in golden/published/saves-*.txt; `ours` is by the formulas of run/saving.h, with
 * seconds in place of picoseconds: those of the passes are the source's own, the rates are said in the file.
 * bench/claims/compare.c calls the functions through the table of quantities.c.  ERR_USAGE: a claim's words are wrong.
 */
#include "emulated_devices/bench/claims/quantity.h"
#include <math.h>

/* Times are thousandths of a second; rates are 10^6 bytes a second of a device. */
struct save_setting {
    int layers, width, vocabulary, bytes;               /* of a GPT; bytes that are saved of each parameter */
    int gigabytes, devices, forward, backward, update, copy, write, every;
};

static enum error_code claim_save(const struct claim *claim, struct save_setting *s, struct error *err)
{
    static const double MOST = 1e9;
    *s = (struct save_setting){ .devices = 1, .every = 1 };
    const struct option table[] = {
        { "--layers", "L", OPTION_INT, &s->layers, .min = 1, .max = 1000, .help = "of a GPT" },
        { "--width", "D", OPTION_INT, &s->width, .min = 1, .max = MOST, .help = "its width" },
        { "--vocabulary", "V", OPTION_INT, &s->vocabulary, .min = 1, .max = MOST, .help = "its tokens" },
        { "--bytes", "N", OPTION_INT, &s->bytes, .min = 1, .max = 100, .help = "saved of each parameter" },
        { "--gigabytes", "N", OPTION_INT, &s->gigabytes, .min = 1, .max = MOST, .help = "of the checkpoint" },
        { "--devices", "N", OPTION_INT, &s->devices, .min = 1, .max = MOST, .help = "that share it" },
        { "--forward", "MS", OPTION_INT, &s->forward, .min = 1, .max = MOST, .help = "of a step" },
        { "--backward", "MS", OPTION_INT, &s->backward, .min = 1, .max = MOST, .help = "likewise" },
        { "--update", "MS", OPTION_INT, &s->update, .min = 1, .max = MOST, .help = "likewise" },
        { "--copy", "MB", OPTION_INT, &s->copy, .min = 1, .max = MOST, .help = "a second, to the host" },
        { "--write", "MB", OPTION_INT, &s->write, .min = 1, .max = MOST, .help = "a second, of each device" },
        { "--every", "N", OPTION_INT, &s->every, .min = 1, .max = MOST, .help = "steps from save to save" },
        { 0 }
    };
    return claim_take(claim, table, err);
}

/* Thousandths of a second in which a device copies its share, or writes the share. */
static double share_time(const struct save_setting *s, int rate) { return 1e6 * s->gigabytes / s->devices / rate; }

enum error_code quantity_save_bytes(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    struct save_setting s;
    (void)setting;
    const enum error_code e = claim_save(claim, &s, err);
    const double L = s.layers, D = s.width;
    claim->ours = 1e-9 * s.bytes * (L * (12 * D * D + 13 * D) + D * s.vocabulary);
    return e;
}

enum error_code quantity_save_hidden(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    struct save_setting s;
    (void)setting;
    const enum error_code e = claim_save(claim, &s, err);
    if (!e) claim->ours = 100 * share_time(&s, s.copy) / (s.forward + s.backward);
    return e;
}

/* A save that waits holds a step for copy and write.  A save meanwhile holds it for what passes do not hide of the
 * copy; the next one begins when this one is written. */
enum error_code quantity_save_gain(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    struct save_setting s;
    (void)setting;
    const enum error_code e = claim_save(claim, &s, err);
    if (e) return e;
    const double steps = (double)s.every * (s.forward + s.backward + s.update);
    const double copy = share_time(&s, s.copy), write = share_time(&s, s.write);
    const double held = fmax(0, copy - (s.forward + s.backward));
    claim->ours = (steps + copy + write) / fmax(steps + held, copy + write);
    return e;
}
