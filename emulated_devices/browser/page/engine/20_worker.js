/* The thread that asks the program, so that the page stays awake: it gets { module } once, then { number, words }, and
 * answers { number, status, out, err, milliseconds }. */
if (typeof importScripts === "function") {
    let engine = null;
    onmessage = ({ data }) => {
        if (data.module) { engine = planEngine(data.module); return; }
        const begin = performance.now(), answer = engine.ask(data.words);
        postMessage({ number: data.number, milliseconds: performance.now() - begin, ...answer });
    };
}
