/* figures.h -- numbers for people: times, bytes, counts, operations and rates with units; sizes that are read.
 *
 * All that the program prints for people goes through here; JSON has base units (picoseconds, bytes).  A number has
 * three or four digits: two decimals below 10, one above, none if it is whole.  A value that would be rounded to 1000
 * has the next unit: 999.96 ms are "1.00 s".  NaN and infinities have no unit.
 *
 * Bytes are counted in KiB, MiB, GiB and TiB of 1024, as memory is made.  Rates, operations and counts have units of
 * 1000, as data sheets do.  Files of cli/, run/, draw/, verify/ and other rooms call these functions.  No function
 * returns an error code.
 */
#ifndef ORRERY_FIGURES_H
#define ORRERY_FIGURES_H

#include <stdbool.h>
#include <stdint.h>

/* A number as text, returned by value so that a printf can use several. */
struct figure { char text[40]; };

/** A time: "27.8 ms", "5.44 s", from two minutes on "34 min 0 s", from two hours "3 h 24 min", from two days
 *  "12 days 3 h". */
struct figure time_format(double seconds);

/** A virtual time. */
struct figure picoseconds_format(double picoseconds);

/** A virtual time with all its digits: "40.08 us", "1.234567891 ms". */
struct figure picoseconds_exact(int64_t picoseconds);

/** A count, such as of parameters: "824", "158.9K", "70.6B". */
struct figure count_format(double);

/** Bytes: "512 B", "158.9 KiB", "74.5 GiB". */
struct figure size_format(uint64_t bytes);

/** The memory of a device: as size_format, with the data sheet's number behind it if that is whole:
 *  "74.5 GiB (80 GB)". */
struct figure memory_format(uint64_t bytes);

/** Operations and rates: "47.6 GFLOP", "477.3 TFLOP/s", "50 GB/s". */
struct figure flop_format(double flop);
struct figure flop_rate_format(double per_second);
struct figure byte_rate_format(double per_second);

/** Energy as electricity is sold, and what is drawn: "31.2 GWh", "10.2 kW". */
struct figure energy_format(double joules);
struct figure power_format(double watts);

/** One unit for a column of numbers that are compared: value / per is printed with so many decimals. */
struct figure_scale { double per; const char *name; int decimals; };

/** The unit in which the longest of some times has one to three digits before its point, with four digits in all. */
struct figure_scale time_scale(double longest_seconds);

/** The unit for some numbers of bytes, of which `most` is the largest. */
struct figure_scale size_scale(uint64_t most);

/** A number in the unit of its column.  One that is not 0 but would be printed as 0 is "<0.1", or with more
 *  decimals. */
struct figure scale_format(const struct figure_scale *, double value);

/**
 * Read a size: "4096", "64M", "1.5GiB", "80GB", "1e9".  K, M, G and T are of 1024, with or without "iB"; KB, MB, GB and
 * TB are of 1000.  A fraction of a byte is left out, if the size has a unit.
 * @return whether the whole text is a size, in the range of uint64_t.
 */
bool size_parse(const char *text, uint64_t *bytes);

/**
 * Read a count: "4096", "300B", "15.6T", "2e12".  K, M, B and T are of 1000, as count_format prints them, and may be
 * small letters.
 * @return whether the whole text is a count, whole, and in the range of uint64_t.
 */
bool count_parse(const char *text, uint64_t *count);

/** The shortest text that size_parse reads as these bytes: "64MiB", "80GB", "1536". */
struct figure size_word(uint64_t bytes);

/** A size of at least these bytes, whole in its unit and at most 1 % larger, for advice such as
 *  "--memory 5028MiB". */
struct figure size_enough(uint64_t bytes);

/** The ending of a noun after a number. */
static inline const char *plural(int64_t n) { return n == 1 ? "" : "s"; }

#endif
