/* waves.c -- Rossby-Haurwitz waves, whose course is known, and the noise that members of an ensemble differ by.
 *
 * Numbers depend on seed, step, sample and member alone, so that every device draws the same.  Errors: ERR_MEMORY.
 */
#include "ref/weather/serial.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <stdlib.h>

/* The most samples and members that have numbers of their own in a step. */
enum { DRAWS_OF_A_STEP = 1 << 20 };

/* How far apart two states are, as FourCastNet 3 forecasts them: a quarter of a day. */
static const double days = 0.25, pi = 3.14159265358979323846;

/* Draw a spectrum [degrees, degrees, 2] without its mean; waves of a degree have the same variance for each order. */
static void draw_spectrum(const struct weather_network *network, uint64_t seed, uint64_t stream, int64_t index,
                          double *c)
{
    const int64_t L = network->harmonics.degrees;
    for (int64_t l = 0; l < L; l++)
        for (int64_t m = 0; m < L; m++)
            for (int64_t part = 0; part < 2; part++) {
                const int64_t at = (l * L + m) * 2 + part;
                const bool is = l > 0 && m <= l && !(m == 0 && part == 1);
                c[at] = is ? random_normal(seed, stream, (uint64_t)(index * L * L * 2 + at)) * sqrt(4 * pi)
                               / sqrt((double)((2 * l + 1) * (L - 1))) : 0;
            }
}

/* Every order turns westward by its angle. */
static void turn(const struct weather_network *network, const double *c, double *turned)
{
    const int64_t L = network->harmonics.degrees;
    for (int64_t l = 0; l < L; l++)
        for (int64_t m = 0; m < L; m++) {
            const int64_t at = (l * L + m) * 2;
            const double angle = l > 0 ? 2 * pi * days * 2 * (double)m / (double)(l * (l + 1)) : 0;
            turned[at] = c[at] * cos(angle) - c[at + 1] * sin(angle);
            turned[at + 1] = c[at] * sin(angle) + c[at + 1] * cos(angle);
        }
}

enum error_code weather_wave(const struct weather_network *network, uint64_t seed, int64_t step, int64_t sample,
                             double *state, double *next, struct error *err)
{
    const int64_t channels = weather_channels(&network->shape), points = weather_points(&network->shape),
        numbers = network->harmonics.degrees * network->harmonics.degrees * 2;
    double *const c = calloc((size_t)(2 * numbers), sizeof *c);
    enum error_code e = c ? OK : fail(err, ERR_MEMORY, "no memory for the spectrum of a wave");
    for (int64_t k = 0; k < channels && !e; k++) {
        draw_spectrum(network, seed, random_stream("weather.waves"), (step * DRAWS_OF_A_STEP + sample) * channels + k,
                      c);
        turn(network, c, c + numbers);
        e = harmonics_to_grid(&network->harmonics, SYNTHESIS, 1, c, state + k * points, err);
        if (!e) e = harmonics_to_grid(&network->harmonics, SYNTHESIS, 1, c + numbers, next + k * points, err);
    }
    free(c);
    return e;
}

enum error_code weather_noise(const struct weather_network *network, uint64_t seed, int64_t step, int64_t sample,
                              int64_t member, double *noise, struct error *err)
{
    const int64_t channels = network->shape.noise, points = weather_points(&network->shape),
        numbers = network->harmonics.degrees * network->harmonics.degrees * 2;
    const int64_t draw = step * DRAWS_OF_A_STEP + sample * 1024 + member;
    double *const c = calloc((size_t)numbers, sizeof *c);
    enum error_code e = c ? OK : fail(err, ERR_MEMORY, "no memory for the spectrum of noise");
    for (int64_t k = 0; k < channels && !e; k++) {
        draw_spectrum(network, seed, random_stream("weather.noise"), draw * channels + k, c);
        e = harmonics_to_grid(&network->harmonics, SYNTHESIS, 1, c, noise + k * points, err);
    }
    free(c);
    return e;
}
