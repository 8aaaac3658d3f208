/* figures.c -- numbers with units for people, and sizes that people write.
 *
 * All rooms that print call this file; figures.h has the rules.  No function here can fail, but for size_parse, which
 * returns false.  Files of cli/, run/, draw/, course/ and other rooms call these functions.
 */
#include "ref/io/figures.h"
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BINARY = 1024, DECIMAL = 1000 };

/* ---- one number -------------------------------------------------------------------------------------------------- */

/* Decimals with which a number has three or four digits. */
static int decimals_of(double x)
{
    if (x == floor(x) && fabs(x) < 1e6) return 0;
    return fabs(x) < 9.995 ? 2 : 1;
}

/* Print a number with the first of some units in which the number is below the base, once it is rounded. */
static struct figure scaled(double x, double base, const char *const *unit, int units, const char *blank)
{
    struct figure s;
    int k = 0;
    if (!isfinite(x)) {
        snprintf(s.text, sizeof s.text, "%g", x);
        return s;
    }
    /* The limit is that of the rounded number: 999.96 has the next unit. */
    while (k + 1 < units && fabs(x) >= base - 0.05) x /= base, k++;
    if (fabs(x) >= 1e6) snprintf(s.text, sizeof s.text, "%.3g%s%s", x, *unit[k] ? blank : "", unit[k]);
    else snprintf(s.text, sizeof s.text, "%.*f%s%s", decimals_of(x), x, *unit[k] ? blank : "", unit[k]);
    return s;
}

static const char *const COUNTS[] = { "", "K", "M", "B", "T" };
enum { COUNT_UNITS = sizeof COUNTS / sizeof *COUNTS };

struct figure count_format(double x) { return scaled(x, DECIMAL, COUNTS, COUNT_UNITS, ""); }

struct figure flop_format(double x)
{
    static const char *const unit[] = { "FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP", "ZFLOP" };
    return scaled(x, DECIMAL, unit, 8, " ");
}

struct figure flop_rate_format(double x)
{
    static const char *const unit[] = { "FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s", "EFLOP/s" };
    return scaled(x, DECIMAL, unit, 7, " ");
}

struct figure byte_rate_format(double x)
{
    static const char *const unit[] = { "B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s" };
    return scaled(x, DECIMAL, unit, 6, " ");
}

struct figure energy_format(double joules)
{
    static const char *const unit[] = { "Wh", "kWh", "MWh", "GWh", "TWh" };
    return scaled(joules / 3600, DECIMAL, unit, 5, " ");
}

struct figure power_format(double watts)
{
    static const char *const unit[] = { "W", "kW", "MW", "GW" };
    return scaled(watts, DECIMAL, unit, 4, " ");
}

/* ---- times ------------------------------------------------------------------------------------------------------- */

enum { MINUTE = 60, HOUR = 3600, DAY = 86400, LONGEST_DAYS = 10000 };

/* Whole parts of a long time, of which the smaller is rounded. */
static void two_units(struct figure *figure, double seconds, double small, double large, const char *names)
{
    const double parts = round(seconds / small), whole = floor(parts * small / large);
    snprintf(figure->text, sizeof figure->text, names, whole, parts - whole * (large / small));
}

/* Two units for times from two minutes on: minutes and seconds, hours and minutes, days and hours. */
static struct figure long_time(double seconds)
{
    struct figure s, negative = { "-" };
    const double x = fabs(seconds);
    if (round(x) < 2 * HOUR) two_units(&s, x, 1, MINUTE, "%.0f min %.0f s");
    else if (round(x / MINUTE) < 2 * DAY / MINUTE) two_units(&s, x, MINUTE, HOUR, "%.0f h %.0f min");
    else if (x < (double)LONGEST_DAYS * DAY) two_units(&s, x, HOUR, DAY, "%.0f days %.0f h");
    else snprintf(s.text, sizeof s.text, "%.3g years", x / (365.25 * DAY));
    if (seconds >= 0) return s;
    memcpy(negative.text + 1, s.text, sizeof s.text - 2);
    negative.text[sizeof s.text - 1] = '\0';
    return negative;
}

struct figure picoseconds_format(double ps)
{
    static const char *const unit[] = { "ps", "ns", "us", "ms", "s" };
    if (ps == 0) return (struct figure){ "0 s" };
    if (isfinite(ps) && fabs(ps) >= 119.95e12) return long_time(1e-12 * ps);
    return scaled(ps, DECIMAL, unit, 5, " ");
}

struct figure time_format(double seconds) { return picoseconds_format(1e12 * seconds); }

/* A time with all its digits: the largest unit that leaves a whole part, and a fraction without zeros at its end. */
struct figure picoseconds_exact(int64_t ps)
{
    static const char *const unit[] = { "ps", "ns", "us", "ms", "s" };
    struct figure s;
    const uint64_t all = ps < 0 ? 0 - (uint64_t)ps : (uint64_t)ps;
    uint64_t per = 1;
    int k = 0, used, digits;
    for (; k < 4 && all / per >= DECIMAL; k++) per *= DECIMAL;
    used = snprintf(s.text, sizeof s.text, "%s%" PRIu64, ps < 0 ? "-" : "", all / per);
    uint64_t rest = all % per;
    /* Zeros at the end of the fraction are left out. */
    for (digits = 3 * k; rest > 0 && rest % 10 == 0; digits--) rest /= 10;
    if (rest > 0) used += snprintf(s.text + used, sizeof s.text - (size_t)used, ".%0*" PRIu64, digits, rest);
    snprintf(s.text + used, sizeof s.text - (size_t)used, " %s", ps == 0 ? "s" : unit[k]);
    return s;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static const char PREFIX[] = "KMGT";
enum { PREFIXES = 4 };

/* To the power of a prefix: 0 is none. */
static uint64_t figures_unit_of(int base, int prefix)
{
    uint64_t unit = 1;
    while (prefix-- > 0) unit *= (uint64_t)base;
    return unit;
}

/* The largest prefix of which these bytes are a whole number; 0: none. */
static int whole_prefix(uint64_t bytes, int base)
{
    int k = 0;
    while (k < PREFIXES && bytes > 0 && bytes % figures_unit_of(base, k + 1) == 0) k++;
    return k;
}

struct figure size_format(uint64_t bytes)
{
    static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    return scaled((double)bytes, BINARY, unit, 5, " ");
}

struct figure memory_format(uint64_t bytes)
{
    struct figure s = size_format(bytes);
    const int decimal = whole_prefix(bytes, DECIMAL);
    const size_t used = strlen(s.text);
    if (decimal > whole_prefix(bytes, BINARY))
        snprintf(s.text + used, sizeof s.text - used, " (%" PRIu64 " %cB)", bytes / figures_unit_of(DECIMAL, decimal),
                 decimal == 1 ? 'k' : PREFIX[decimal - 1]);
    return s;
}

struct figure size_word(uint64_t bytes)
{
    struct figure s;
    const int decimal = whole_prefix(bytes, DECIMAL), binary = whole_prefix(bytes, BINARY);
    if (decimal > binary)
        snprintf(s.text, sizeof s.text, "%" PRIu64 "%cB", bytes / figures_unit_of(DECIMAL, decimal),
                 PREFIX[decimal - 1]);
    else if (binary > 0)
        snprintf(s.text, sizeof s.text, "%" PRIu64 "%ciB", bytes / figures_unit_of(BINARY, binary), PREFIX[binary - 1]);
    else snprintf(s.text, sizeof s.text, "%" PRIu64, bytes);
    return s;
}

struct figure size_enough(uint64_t bytes)
{
    struct figure s;
    int k = 0;
    while (k < PREFIXES && bytes / figures_unit_of(BINARY, k + 1) >= 100) k++;
    const uint64_t unit = figures_unit_of(BINARY, k), whole = bytes / unit + (bytes % unit > 0);
    if (k == 0) snprintf(s.text, sizeof s.text, "%" PRIu64, bytes);
    else snprintf(s.text, sizeof s.text, "%" PRIu64 "%ciB", whole, PREFIX[k - 1]);
    return s;
}

/* ---- reading a size ---------------------------------------------------------------------------------------------- */

static const char DIGITS[] = "0123456789";

/* The factor of a unit such as "", "B", "G", "GiB" or "GB"; 0: there is no such unit.  All letters may be small, but
 * "Gb" would be bits. */
static uint64_t factor_of(const char *unit)
{
    const char *p = *unit ? strchr(PREFIX, toupper((unsigned char)*unit)) : NULL;
    if (p == NULL) return *unit == '\0' || strcmp(unit, "B") == 0 ? 1 : 0;
    const int prefix = (int)(p - PREFIX) + 1;
    const bool small = islower((unsigned char)*unit) != 0;
    unit++;
    if (*unit == '\0' || strcmp(unit, "iB") == 0 || (small && strcmp(unit, "ib") == 0))
        return figures_unit_of(BINARY, prefix);
    if (strcmp(unit, "B") == 0 || (small && strcmp(unit, "b") == 0)) return figures_unit_of(DECIMAL, prefix);
    return 0;
}

/* The length of "12", "1.5", "1e9"; 0: there is no number. */
static size_t number_length(const char *text, bool *whole)
{
    size_t n = strspn(text, DIGITS);
    *whole = true;
    if (n == 0) return 0;
    if (text[n] == '.') n += 1 + strspn(text + n + 1, DIGITS), *whole = false;
    const size_t power = text[n] == 'e' ? strspn(text + n + 1, DIGITS) : 0;
    if (power > 0) n += 1 + power, *whole = false;
    return n;
}

/* Digits times a factor, not as a double: exact above 2^53, too.  The result must fit 64 bits. */
static bool whole_parse(const char *digits, size_t n, uint64_t factor, uint64_t *out)
{
    uint64_t x = 0;
    for (const char *c = digits; c < digits + n; c++) {
        const uint64_t digit = (uint64_t)(*c - '0');
        if (x > (UINT64_MAX - digit) / 10) return false;
        x = 10 * x + digit;
    }
    if (x > UINT64_MAX / factor) return false;
    *out = x * factor;
    return true;
}

/* A size is a number and a unit; it must be whole if the unit is a byte. */
bool size_parse(const char *text, uint64_t *bytes)
{
    bool whole;
    const size_t n = number_length(text, &whole);
    const uint64_t factor = n > 0 ? factor_of(text + n) : 0;
    if (factor == 0) return false;
    if (whole) return whole_parse(text, n, factor, bytes);
    const double x = strtod(text, NULL) * (double)factor;
    if (!(x < 0x1p64) || (factor == 1 && x != floor(x))) return false;
    *bytes = (uint64_t)x;
    return true;
}

/* A count is a number and one letter, or none.  The nearest double of "15.6" times 10^12 is rounded to a whole number,
 * which must be as near as a double can be. */
bool count_parse(const char *text, uint64_t *count)
{
    bool whole;
    const size_t n = number_length(text, &whole);
    uint64_t factor = 1;
    int unit = text[n] == '\0' ? 0 : 1;
    if (n == 0) return false;
    if (unit > 0 && text[n + 1] != '\0') return false;
    for (; unit > 0 && unit < COUNT_UNITS && COUNTS[unit][0] != toupper((unsigned char)text[n]); unit++)
        continue;
    if (unit == COUNT_UNITS) return false;
    for (int i = 0; i < unit; i++) factor *= DECIMAL;
    if (whole) return whole_parse(text, n, factor, count);
    const double x = strtod(text, NULL) * (double)factor, near = round(x);
    if (!(near < 0x1p64) || fabs(x - near) > 1e-15 * near) return false;
    *count = (uint64_t)near;
    return true;
}

/* ---- one unit for a column --------------------------------------------------------------------------------------- */

/* A scale whose first unit is 1, of which there are no parts. */
static struct figure_scale figures_scale_of(double most, double base, const char *const *unit, int units)
{
    struct figure_scale s = { 1, unit[0], 0 };
    for (int k = 1; k < units && most / s.per >= base - 0.05; k++) s.per *= base, s.name = unit[k];
    const double x = most / s.per;
    if (s.per > 1) s.decimals = x < 9.9995 ? 3 : x < 99.995 ? 2 : x < 999.95 ? 1 : 0;
    return s;
}

struct figure_scale time_scale(double longest)
{
    static const char *const unit[] = { "ps", "ns", "us", "ms", "s" };
    struct figure_scale s = figures_scale_of(fabs(1e12 * longest), DECIMAL, unit, 5);
    s.per *= 1e-12;
    return s;
}

struct figure_scale size_scale(uint64_t most)
{
    static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    return figures_scale_of((double)most, BINARY, unit, 5);
}

/* A value that is too small for the unit's decimals is printed as "<0.001", not as zero. */
struct figure scale_format(const struct figure_scale *scale, double value)
{
    struct figure s;
    const double x = value / scale->per, least = pow(10, -scale->decimals);
    if (value == 0) snprintf(s.text, sizeof s.text, "0");
    else if (fabs(x) < least / 2)
        snprintf(s.text, sizeof s.text, "%s%.*f", value < 0 ? ">-" : "<", scale->decimals, least);
    else snprintf(s.text, sizeof s.text, "%.*f", scale->decimals, x);
    return s;
}
