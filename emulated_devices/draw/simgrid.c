/* simgrid.c -- writes hosts, links and routes of a cluster as XML for SimGrid.  cli/show/cluster.c calls.  The only
 * error is ERR_MEMORY; the caller notices a file that cannot be written. */
#include "emulated_devices/draw/simgrid.h"
#include "emulated_devices/device/network.h"
#include <inttypes.h>

/* Without these SimGrid takes the factors of an old Ethernet cluster, and shares links as TCP does. */
static void write_options(FILE *to, const struct cluster *cluster)
{
    static const char *const option[][2] = {
        { "smpi/bw-factor", "0:1" }, { "smpi/lat-factor", "0:1" }, { "network/crosstraffic", "0" },
        { "network/TCP-gamma", "0" }, { "network/weight-S", "0" }, { "smpi/simulate-computation", "no" },
    };
    /* Messages of more than `eager` bytes wait for their receiver; SimGrid's thresholds are the first size that
     * waits. */
    const uint64_t eager = cluster->link[cluster->levels - 1].eager, first = eager >= INT32_MAX ? INT32_MAX : eager + 1;
    fprintf(to, "  <config>\n");
    for (size_t i = 0; i < sizeof option / sizeof *option; i++)
        fprintf(to, "    <prop id=\"%s\" value=\"%s\"/>\n", option[i][0], option[i][1]);
    /* SimGrid has two thresholds for this limit, which get the same size. */
    for (int i = 0; i < 2; i++)
        fprintf(to, "    <prop id=\"smpi/%s\" value=\"%" PRIu64 "\"/>\n",
                i == 0 ? "async-small-thresh" : "send-is-detached-thresh", eager == 0 ? 0 : first);
    fprintf(to, "  </config>\n");
}

/* Write each port and each shared link with its rate: bytes in a picosecond become bytes in a second. */
static void write_links(FILE *to, const struct network *network)
{
    for (int i = 0; i < network_links(network); i++)
        fprintf(to, "    <link id=\"link-%d\" bandwidth=\"%.0fBps\" latency=\"0s\"/>\n", i,
                1e12 * network_rate(network, i));
}

/* A pair's latency is a link that nothing fills. */
static void write_wait(FILE *to, const struct cluster *cluster, int from, int dst, const struct message_way *way)
{
    fprintf(to, "    <link id=\"wait-%d-%d\" bandwidth=\"1EBps\" latency=\"%.12gs\"/>\n", from, dst,
            1e-12 * (double)(way->latency + cluster->link[way->level].gap));
}

/* A route goes over the pair's wait, then over all links of the message's way. */
static void write_route(FILE *to, int from, int dst, const struct message_way *way)
{
    fprintf(to, "    <route src=\"%d\" dst=\"%d\" symmetrical=\"NO\"><link_ctn id=\"wait-%d-%d\"/>", from, dst, from,
            dst);
    for (int i = 0; i < way->count; i++) fprintf(to, "<link_ctn id=\"link-%d\"/>", way->link[i]);
    fprintf(to, "</route>\n");
}

/* All links stand before all routes. */
static void write_pairs(FILE *to, const struct network *network, const struct cluster *cluster,
                        int devices, bool routes)
{
    struct message_way w;
    for (int a = 0; a < devices; a++)
        for (int b = 0; b < devices; b++) {
            if (a == b) continue;
            network_way(network, a, b, &w);
            if (routes) write_route(to, a, b, &w);
            else write_wait(to, cluster, a, b, &w);
        }
}

enum error_code simgrid_platform(FILE *to, const struct cluster *cluster, int devices, struct error *err)
{
    /* The network has the same links and ways as our own simulation of the cluster. */
    struct network *n = network_open(cluster, devices);
    if (n == NULL) return fail(err, ERR_MEMORY, "no memory for a network of %d devices", devices);
    fprintf(to, "<?xml version=\"1.0\"?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
                "<!-- %d devices of cluster %s -->\n<platform version=\"4.1\">\n", devices, cluster->name);
    write_options(to, cluster);
    fprintf(to, "  <zone id=\"cluster\" routing=\"Full\">\n");
    for (int d = 0; d < devices; d++) fprintf(to, "    <host id=\"%d\" speed=\"1Tf\"/>\n", d);
    write_links(to, n);
    write_pairs(to, n, cluster, devices, false);
    write_pairs(to, n, cluster, devices, true);
    fprintf(to, "  </zone>\n</platform>\n");
    network_close(n);
    return OK;
}
