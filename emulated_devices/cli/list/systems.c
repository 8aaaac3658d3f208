/* systems.c -- published systems that this program has, for `orrery list systems`: what each claims, the command that
 * shows how that is here, and what is not here.  list.c has the part's row.  Nothing here fails.
 *
 * tests/cli/test_systems.sh runs every command.  `orrery bench` prints a claim and ours side by side, so no figure of
 * ours is repeated here.
 */
#include "emulated_devices/cli/list/list.h"
#include <stddef.h>

struct published_system {
    const char *name, *title;
    const char *claim;                  /* of its abstract or paper; NULL: none of numbers */
    const char *command;                /* after "orrery": it shows the claim beside ours, or that results are right */
    const char *lacks;                  /* what is not here, or why a claim cannot be shown; NULL: nothing known */
    const char *source;
};

static const struct published_system systems[] = {
    /* ---- data parallelism, memory ---- */
    { "ddp", "gradients in buckets, reduced while the backward pass runs", NULL,
      "train --model tiny --dp 4 --data-parallel ddp --steps 2 --check ref", NULL, "PyTorch DDP, arXiv:2006.15704" },
    { "deep-optimizer-states", "updates of offloaded states, some of them on the device",
      "iterations 2.5 times as fast", "bench offload",
      "a host whose memory copies take, too: only a formula has that", "arXiv:2410.21316" },
    { "diloco", "copies train apart for many steps, and an outer optimizer takes their mean",
      "500 times less communication", "train --model tiny --dp 2 --data-parallel diloco --steps 4 --check ref",
      "the loss after long training is not compared", "arXiv:2311.08105" },
    { "distzo2", "two forward passes in place of a backward pass, on many devices", NULL,
      "train --model tiny --dp 2 --optimizer mezo --steps 2 --check ref", NULL, "ZO2; MeZO, arXiv:2305.17333" },
    { "fsdp", "weights, gradients and states in shards, gathered layer by layer", NULL,
      "train --model tiny --dp 4 --data-parallel fsdp --steps 2 --check ref", NULL, "arXiv:2304.11277" },
    { "galore", "optimizer states of low rank", "65.5 % less memory of optimizer states",
      "train --model tiny --optimizer galore --steps 2 --check ref", "quality after long training is not compared",
      "arXiv:2403.03507" },
    { "korthikanti", "sequence parallelism and selective recomputation",
      "5 times less memory of activations", "bench published --only activations", NULL, "arXiv:2205.05198" },
    { "local-sgd", "copies train apart, and their mean is taken every some steps", NULL,
      "train --model tiny --dp 2 --data-parallel local-sgd --steps 4 --check ref", NULL, "arXiv:1805.09767" },
    { "mics", "shards within small groups, copies between them", NULL,
      "train --model tiny --dp 4 --data-parallel hsdp --shard-group 2 --steps 2 --check ref", NULL,
      "arXiv:2205.00119" },
    { "slowmo", "a slow momentum over the means of copies", NULL,
      "train --model tiny --dp 2 --data-parallel slowmo --steps 4 --check ref", NULL, "arXiv:1910.00643" },
    { "zero", "states, gradients and weights in shards", "8 times less memory with gradients and states in shards",
      "bench published --only zero-memory", NULL, "arXiv:1910.02054" },
    { "zero++", "quantised weights and gradients, and weights kept in a node", "4 times fewer bytes",
      "bench quantized", NULL, "arXiv:2306.10209" },
    /* ---- tensor parallelism ---- */
    { "megatron-lm", "matrices cut by outputs, then by inputs", "502 petaFLOP/s on 3072 A100",
      "bench published --only megatron-2021", NULL, "arXiv:1909.08053, arXiv:2104.04473" },
    { "oneflow", "signatures say how tensors lie, and what brings them there", NULL,
      "show sbp mlp --mesh 2x3", NULL, "arXiv:2110.15032" },
    { "oneflow-actors", "operations as actors with registers and back pressure", NULL, "show actors",
      "a training that runs as actors", "OneFlow, arXiv:2110.15032" },
    { "optimus", "matrices in tiles on a square of devices", "1.48 times as fast in training, on 64 devices",
      "bench tensor --devices 4", NULL, "arXiv:2104.05343" },
    { "tesseract", "tiles on a square, and copies of it", "1.38 and 1.53 times as fast",
      "bench tensor --devices 8", NULL, "arXiv:2105.14500" },
    { "t3", "products whose sum is sent as its parts are ready, and added at the memory",
      "30 % faster on average, 47 % at most; 22 % less data moved, 36 % at most", "bench tensor --devices 8",
      "caches, which its 36 % have; training adds on the device", "arXiv:2401.16677" },
    /* ---- context parallelism ---- */
    { "bytescale", "samples on as many devices as they need, balanced over a step", "up to 7.89 times a static mesh",
      "bench lengths", NULL, "arXiv:2502.21231" },
    { "dcp", "blocks of tokens and works where least is sent, for any mask",
      "attention 1.19 to 2.45 times as fast with causal masks, 2.15 to 3.77 with sparse ones",
      "bench published --only dcp-masks", NULL, "arXiv:2510.10620" },
    { "flexsp", "groups of devices by the lengths of samples", "up to 1.72 times Ulysses", "bench lengths", NULL,
      "arXiv:2412.01523" },
    { "llama-3", "keys gathered, or a ring with balanced pieces", NULL,
      "show attention ring-zigzag --devices 2 --seq 8", NULL, "arXiv:2407.21783" },
    { "loongtrain", "heads in one direction, rings in the other", "up to 2.88 times the baselines",
      "bench attention --devices 16 --claims no --wall 0 --scheme loongtrain", NULL, "arXiv:2406.18485" },
    { "ring-attention", "keys travel around a ring", NULL,
      "train --model llama-tiny --cp 3 --attention ring --steps 2 --check ref", NULL, "arXiv:2310.01889" },
    { "rsa", "ring self-attention, in two rings", "13.7 times the batch, 3 times the sequence",
      "bench published --only sequence-parallelism", "sparse attention of 114 thousand tokens", "arXiv:2105.13120" },
    { "striped-attention", "a ring with stripes of tokens, for even work", "up to 1.45 times a ring",
      "bench attention --devices 8 --claims no --wall 0 --scheme ring-striped", NULL, "arXiv:2311.09431" },
    { "tokenring", "queries and results travel both ways", "a ring's messages hide better on a full mesh",
      "bench attention --devices 4 --node 0 --cluster a10-mesh --claims no --wall 0 --scheme tokenring-narrow", NULL,
      "arXiv:2412.20501" },
    { "ulysses", "tokens are exchanged for heads", "2.5 times as fast, sequences 4 times as long",
      "bench published --only sequence-parallelism", NULL, "arXiv:2309.14509" },
    { "usp", "Ulysses inside, a ring outside", NULL,
      "train --model llama-tiny --cp 4 --attention usp --head-parallel 2 --steps 2 --check ref", NULL,
      "arXiv:2405.07719" },
    { "zeppelin", "samples in zones, all cards of a node carry, rows remapped", "2.80 times a ring on average",
      "bench lengths --devices 64", NULL, "arXiv:2509.21841" },
    /* ---- experts ---- */
    { "deepseek-v3", "a row goes to each node once; routers with biases; several next tokens", NULL,
      "bench dispatch", NULL, "arXiv:2412.19437" },
    { "gshard", "experts by all-to-all", NULL,
      "train --model mixtral-tiny --ep 4 --dp 2 --steps 2 --check ref", NULL, "arXiv:2006.16668" },
    { "hecate", "experts in shards, copies where loads are high (FSSDP)", "up to 3.54 times as fast",
      "bench dispatch", NULL, "arXiv:2502.02581" },
    { "parallel-folding", "other axes for experts than for attention", NULL, "bench dispatch",
      "speeds: plans of the paper's mappings stand in docs/parallelism/experts.md", "arXiv:2504.14960" },
    { "sem-moe", "tokens go where their experts probably are (Speculative MoE)", "49 to 57 % fewer rows sent",
      "bench dispatch", "tables of n-grams", "arXiv:2503.04398" },
    { "se-moe", "elastic tasks, experts on slow tiers, inference in a ring of memory", "33 % faster training",
      "show elastic", "fused communication", "arXiv:2205.10034" },
    { "tutel", "parts of the capacity in a pipeline, two-dimensional all-to-all", "up to 5.75 times a layer",
      "bench dispatch", NULL, "arXiv:2206.03382" },
    /* ---- pipelines ---- */
    { "breadth-first", "chunks of layers, all microbatches of one before the next", NULL,
      "show schedule bfs --pp 4 --chunks 2 --micro 4", NULL, "arXiv:2211.05953" },
    { "chimera", "two pipelines in opposite directions", "half the bubbles of GPipe", "bench schedules", NULL,
      "arXiv:2107.06925" },
    { "dualpipe", "both directions, messages of experts hidden", NULL, "bench schedules", NULL,
      "DeepSeek-AI, DualPipe" },
    { "gpipe", "microbatches in a pipeline", NULL, "show schedule gpipe --pp 4 --micro 4", NULL, "arXiv:1811.06965" },
    { "pipedream", "one forward, one backward", NULL, "show schedule 1f1b --pp 4 --micro 8", NULL,
      "arXiv:1806.03377, arXiv:2006.09503" },
    { "skippipe", "each microbatch leaves out some stages",
      "steps up to 55 % shorter; 7 % more perplexity with half of the layers", "bench partial",
      "nodes that are slow, and a search of routes; after few steps depth matters little", "arXiv:2502.19913" },
    { "zero-bubble", "backward passes in two parts", "up to 31 % more samples a second",
      "bench published --only zero-bubble", NULL, "arXiv:2401.10241, arXiv:2405.15362" },
    /* ---- plans and planners ---- */
    { "alpa", "strategies inside operators, and stages", "plans match or outperform plans by hand", "bench planners",
      NULL, "arXiv:2201.12023" },
    { "flexflow", "a random walk over strategies", NULL,
      "search --devices 8 --batch 16 --model tiny --memory 8GB --planner flexflow", NULL, "arXiv:1807.05358" },
    { "frontier-partitioning", "weights in a card, gradients in a node, states over all devices",
      "1.71 times as fast as ZeRO++ with 20B parameters", "bench published --only data-partitioning",
      "1.71: 384 devices; ZeRO++'s gathering of the first weights from all of them", "arXiv:2501.04266" },
    { "frontier", "a trillion parameters on slow links", "38.38 % of the peak with 22B", "bench planners",
      "its percentages: kernels of that machine are not measured", "arXiv:2312.12705" },
    { "galvatron", "strategies layer by layer, within the memory", NULL, "bench planners", NULL,
      "arXiv:2211.13878" },
    { "holmes", "stages by the speed of their networks", "copies send nothing over slow links", "bench planners", NULL,
      "ICPP 2024" },
    { "mindspore", "costs on a graph of operators (PanGu-alpha)", NULL, "bench planners", NULL, "arXiv:2104.12369" },
    { "pipette", "latency along the critical path, devices placed by annealing", "its estimate is nearer than AMP's",
      "bench planners", NULL, "DATE 2024" },
    { "tensoropt", "the frontier of time and memory", "time is estimated well", "bench planners", NULL,
      "arXiv:2004.10856" },
    { "vtrain", "steps replayed from measured kernels", "8.37 % mean error in a node",
      "bench published --only vtrain-node", NULL, "arXiv:2312.12391" },
    /* ---- models ---- */
    { "fourcastnet-3", "fields on the sphere, in tiles", NULL, "verify spatial --devices 4 --part 1/8",
      "a whole model that trains", "arXiv:2507.12144" },
    { "parscale", "parallel streams of one model", "as a model with O(log P) times the parameters", "bench streams",
      "memory and latency of 22 and 6 times", "arXiv:2505.10475" },
    /* ---- serving ---- */
    { "apex", "a simulator of iterations, driven by the engine's own scheduler", NULL,
      "serve --model tiny --draw azure-code --requests 8 --scale 0.01 --dp 2 --tp 2 --backend count",
      "a search of plans, energy, its own profiles", "APEX, arXiv:2411.17651" },
    { "marlin", "a product with weights of 4 bits in stripes", "3.87 times as fast at small batches", "bench serving",
      "the product inside the engine", "arXiv:2408.11743" },
    { "nanoflow", "parts of a batch on three engines at once", "1.91 times as fast", "bench serving",
      "parts of a batch inside the engine: the paper compares with other engines", "arXiv:2408.12757" },
    { "parallelbench", "several tokens of a masked-diffusion model at once", NULL, "bench serving", NULL,
      "ParallelBench, arXiv:2510.04767" },
    { "pim-gpt", "products in the banks of a memory", NULL, "bench serving", "speed: counters alone",
      "arXiv:2310.09385" },
    { "samba-coe", "experts as whole models in three tiers (SN40L)", NULL, "bench serving", "speed: counters alone",
      "arXiv:2405.07518" },
    { "speculative-decoding", "a draft proposes tokens, and the distribution stays", "2 to 3 times as fast",
      "bench serving", "speeds: tokens taken beside the formula", "Leviathan et al., arXiv:2211.17192" },
    { "tpi-llm", "a star of small devices, weights through a window", NULL, "bench serving",
      "unequal heads inside the engine", "arXiv:2410.00531" },
    /* ---- a job's life ---- */
    { "c4", "who is slow, who hangs, and paths for flows", NULL, "bench paths",
      "the cost of real failures; `orrery diagnose RUN` names injected ones", "arXiv:2406.04594" },
    { "datastates", "checkpoints that are copied while the next step computes", "saves up to 48 times as fast",
      "bench published --only saves-hidden", "48: a machine with its file system",
      "HPDC 2024, doi:10.1145/3625549.3658685" },
    { "elaswave", "a device is lost in a step, and the others finish it", NULL,
      "train --model tiny --dp 3 --zero 2 --steps 3 --batch 6 --arithmetic exact --lose 2:1:update",
      "layers moved by minimax, clock rates raised", "arXiv:2510.00606" },
    { "stream", "the rate of memory, by loops and by tasks as in HPX's form", NULL,
      "calibrate --stream --busy --elements 65536 --rounds 2", NULL, "J. McCalpin, STREAM" },
    { "tempi", "strided pieces in one canonical form", NULL, "bench packing", "transfers by the chosen way",
      "arXiv:2012.14363" },
    { "tenplex", "the state of a job as a collection, moved with the fewest bytes", NULL,
      "train --model tiny --dp 2 --steps 2 --arithmetic exact --check ref",
      "times on a cluster; bytes equal the lower bound (tests/devices/test_moves.c)", "arXiv:2312.05181" },
};
enum { SYSTEMS = sizeof systems / sizeof *systems };

void list_systems(void)
{
    for (int i = 0; i < SYSTEMS; i++) {
        const struct published_system *const s = &systems[i];
        list_entry(s->name, s->title);
        if (s->claim) list_field("claims: %s", s->claim);
        list_field("shown by: orrery %s", s->command);
        if (s->lacks) list_field("not here: %s", s->lacks);
        list_field("from %s", s->source);
    }
}
