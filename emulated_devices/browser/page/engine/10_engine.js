/* The program's own `orrery plan`, compiled to WebAssembly: asks it and keeps what it writes.  The page and tests/browser/
 * call planEngine(module): the result's ask(words) returns { status, out, err }.
 *
 * A device of a plan is a fiber (browser/fiber.c).  A function of WebAssembly cannot leave its stack of calls, so the
 * code is rewritten by asyncify: page_switch makes all functions return to run() below with their places saved, and
 * run() enters those of another fiber.
 */
"use strict";

function planEngine(module) {
    const decoder = new TextDecoder(), encoder = new TextEncoder();
    const NOWHERE = 8;                  // WASI's number for a file that is not open
    let x = null, next = null, rewinding = false, written = { 1: [], 2: [] };

    const memory = () => new DataView(x.memory.buffer);

    /* What standard output (1) and standard error (2) get is kept. */
    function write(file, list, count, done) {
        if (!(file in written)) return NOWHERE;
        const view = memory();
        let sum = 0;
        for (let i = 0; i < Number(count); i++) {
            const at = Number(list) + 16 * i;
            const from = Number(view.getBigUint64(at, true)), length = Number(view.getBigUint64(at + 8, true));
            written[file].push(new Uint8Array(x.memory.buffer, from, length).slice());
            sum += length;
        }
        view.setBigUint64(Number(done), BigInt(sum), true);
        return 0;
    }

    class Ended extends Error {}
    const end = (status) => { throw new Ended("ended with " + status); };

    const env = {
        page_seconds: () => performance.now() / 1000,
        page_abort: () => end(1),
        page_grow: (size) => {
            const missing = Math.ceil((size - x.memory.buffer.byteLength) / 65536);
            try { if (missing > 0) x.memory.grow(missing); } catch (error) { return 0; }
            return 1;
        },
        emscripten_memcpy_big: (to, from, bytes) => {
            new Uint8Array(x.memory.buffer).copyWithin(Number(to), Number(from), Number(from) + Number(bytes));
            return to;
        },
        page_switch: (from, to) => {
            if (rewinding) { x.asyncify_stop_rewind(); rewinding = false; return; }
            next = to;
            x.asyncify_start_unwind(Number(x.fiber_record(from)));
        },
    };
    const wasi = { fd_write: write, fd_close: () => 0, proc_exit: end };
    for (const { module: from, name } of WebAssembly.Module.imports(module))
        if (from === "wasi_snapshot_preview1" && !(name in wasi)) wasi[name] = () => NOWHERE;

    function start() {
        x = new WebAssembly.Instance(module, { env, wasi_snapshot_preview1: wasi }).exports;
        next = null, rewinding = false;
        x.__wasm_call_ctors();
    }

    /* Call a function on the page's own stack, and go from fiber to fiber until that call has returned. */
    function run(first) {
        let value = first();
        while (next !== null) {
            const to = next, base = x.fiber_base(to);
            next = null;
            x.asyncify_stop_unwind();
            x.stackRestore(x.fiber_top(to));
            if (x.fiber_begins(to)) { x.fiber_body(to); continue; }
            rewinding = true;
            x.asyncify_start_rewind(Number(x.fiber_record(to)));
            if (base) x.fiber_body(base);
            else value = first();
        }
        return value;
    }

    function text(parts) {
        const all = new Uint8Array(parts.reduce((sum, p) => sum + p.length, 0));
        let at = 0;
        for (const p of parts) { all.set(p, at); at += p.length; }
        return decoder.decode(all);
    }

    function ask(words) {
        written = { 1: [], 2: [] };
        let status;
        try {
            if (x === null) start();
            const spelled = encoder.encode(words.map((word) => word + "\0").join(""));
            const room = x.ask_room(BigInt(spelled.length + 1));
            new Uint8Array(x.memory.buffer).set(spelled, Number(room));
            status = run(() => x.ask_plan(room, words.length));
        } catch (error) {
            /* The next question begins with a new copy of the program. */
            x = null, status = 1;
            if (!(error instanceof Ended)) written[2].push(encoder.encode("orrery: the browser stopped it: " + error.message));
        }
        return { status, out: text(written[1]), err: text(written[2]) };
    }

    return { ask, bytes: () => (x ? x.memory.buffer.byteLength : 0) };
}

if (typeof module !== "undefined") module.exports = planEngine;
