// 30_ask.js -- the fields, the thread that asks the program, and what is shown meanwhile.  The page runs startAsking() when everything is there.

const PATIENCE = 1500;          // milliseconds after which an answer that nobody wants any more is given up
const ask = { module: null, worker: null, number: 0, busy: null, next: null, film: 0, since: 0, shown: null };

function newWorker() {
  if (!ask.source) ask.source = URL.createObjectURL(new Blob([document.getElementById('engine').textContent], { type: 'text/javascript' }));
  ask.worker = new Worker(ask.source);
  ask.worker.onmessage = ({ data }) => takeAnswer(data);
  ask.worker.onerror = event => takeAnswer({ number: ask.number, status: 1, out: '', err: 'orrery: the page\'s thread ended: ' + event.message, milliseconds: 0 });
  ask.worker.postMessage({ module: ask.module });
}

function send(question) {
  ask.busy = question;
  ask.since = performance.now();
  ask.worker.postMessage({ number: ++ask.number, words: [...question.words, '--json', '-', ...(question.film ? ['--film'] : [])] });
  clearTimeout(ask.slow);
  ask.slow = setTimeout(() => { if (ask.busy) ask.state.textContent = question.film ? 'filming the step \u2026' : 'planning \u2026'; }, 200);
}

// Ask for a plan.  A question that waits is replaced; one that has taken too long is given up.
function askFor(question) {
  clearTimeout(ask.film);
  ask.next = question;
  if (!ask.worker) return;
  if (ask.busy && performance.now() - ask.since > (ask.busy.film ? 0 : PATIENCE)) {
    ask.worker.terminate();
    ask.busy = null;
    newWorker();
  }
  if (!ask.busy) { ask.next = null; send(question); }
  else {
    clearTimeout(ask.late);
    ask.late = setTimeout(() => { if (ask.next) askFor(ask.next); }, PATIENCE);
  }
}

// The film is asked for when the figures are there and nobody moves a slider.
function takeAnswer(answer) {
  if (answer.number !== ask.number) return;
  const question = ask.busy;
  ask.busy = null;
  clearTimeout(ask.slow);
  if (ask.next) { const next = ask.next; ask.next = null; send(next); if (question.film) return; }
  const main = document.getElementById('page');
  if (question.film) {
    const film = answer.out ? JSON.parse(answer.out).film : null;
    if (film) orrery.show({ films: [film], words: [] });
    else main.textContent = '';
    main.classList.remove('old');
    ask.state.textContent = film ? ask.said : ask.said + '; its film is refused: ' + answer.err.trim().split('\n').pop();
    return;
  }
  const d = showAnswer(ask.place, answer, words => { fieldsOfWords(mergedWords(question.words, words)); changed(); });
  ask.shown = { words: question.words, status: answer.status };
  ask.said = 'answered in ' + Math.round(answer.milliseconds) + ' ms by the program itself, in this page';
  ask.state.textContent = ask.said;
  main.classList.add('old');
  if (!d) { page.films = []; main.textContent = ''; main.classList.remove('old'); return; }
  if (!ask.next && !ask.busy) ask.film = setTimeout(() => askFor({ words: question.words, film: true }), 300);
}

// Words with those of a change: a flag that both have is the change's.
function mergedWords(words, change) {
  const flags = new Set(change.filter(w => w.startsWith('--')).flatMap(w => (w === '--zero' || w === '--data-parallel' ? ['--zero', '--data-parallel'] : [w])));
  const kept = [];
  for (let i = 0; i < words.length; i++) {
    if (!flags.has(words[i])) { kept.push(words[i]); continue; }
    if (words[i + 1] !== undefined && !words[i + 1].startsWith('--')) i++;
  }
  return [...kept, ...change];
}

// ---- fields ----

// A slider's nearest step to a value that may have been typed.
function stepOf(field) {
  const at = field.steps.findIndex(s => String(s) === String(field.value));
  if (at >= 0 || field.value === '') return Math.max(0, at);
  let best = 0;
  field.steps.forEach((s, i) => { if (s !== '' && s <= Number(field.value)) best = i; });
  return best;
}

function fieldPart(field, number) {
  const id = 'field' + number, label = make('label', { for: id }, field.text);
  if (field.names) {
    const chooser = make('select', { id, onchange: e => { field.value = e.target.value; changed(); } }, field.names.map(n => make('option', { value: n.name }, n.name)));
    const about = make('span', { class: 'soft about' });
    field.draw = () => {
      if (![...chooser.options].some(o => o.value === String(field.value))) chooser.append(make('option', { value: field.value }, field.value));
      chooser.value = field.value;
      about.textContent = (field.names.find(n => n.name === field.value) || {}).description || '';
    };
    return make('div', { class: 'field' }, label, chooser, about);
  }
  const slider = make('input', { id, type: 'range', min: '0', max: String(field.steps.length - 1), step: '1', oninput: e => { field.value = field.steps[e.target.value]; changed(); } });
  const typed = make('input', { type: 'text', inputmode: 'numeric', class: 'typed', 'aria-label': field.text + ', as a number', onchange: e => { field.value = e.target.value.trim() || field.usual; changed(); field.draw(); } });
  field.draw = () => {
    slider.value = stepOf(field);
    slider.setAttribute('aria-valuetext', field.value === '' ? 'the program\'s choice' : String(field.value));
    if (document.activeElement !== typed) typed.value = field.value;
    typed.placeholder = field.flag === '--micro' ? 'auto' : 'model\'s';
  };
  return make('div', { class: 'field' }, label, make('span', { class: 'row' }, slider, typed));
}

// A field has changed: the address, the command and the answer follow.
function changed() {
  const words = wordsOfFields();
  for (const f of FIELDS) f.draw();
  if (document.activeElement !== ask.others) ask.others.value = otherWords;
  ask.command.textContent = commandOf(words);
  history.replaceState(null, '', addressOfWords(words));
  askFor({ words, film: false });
}

function buildFields() {
  ask.command = make('code', {});
  ask.state = make('span', { class: 'soft', role: 'status' }, 'unpacking the program \u2026');
  ask.place = make('div', { id: 'answer', 'aria-label': 'answer', role: 'region' });
  ask.others = make('input', { id: 'others', type: 'text', spellcheck: 'false', autocomplete: 'off', onchange: e => { otherWords = e.target.value; changed(); } });
  const copy = make('button', { type: 'button', onclick: async () => {
    try { await navigator.clipboard.writeText(ask.command.textContent); copy.textContent = 'copied'; }
    catch (error) { getSelection().selectAllChildren(ask.command); copy.textContent = 'selected'; }
    setTimeout(() => { copy.textContent = 'copy'; }, 1500);
  } }, 'copy');
  // Keys inside the fields are the fields': elsewhere they move the film.
  document.getElementById('ask').addEventListener('keydown', e => e.stopPropagation());
  document.getElementById('ask').append(
    make('header', {}, make('h1', {}, 'Plan a training step'), make('p', { class: 'soft' }, 'Memory, messages and virtual time of every device, by orrery plan itself, which runs inside this page. Nothing is sent anywhere.')),
    make('form', { class: 'fields', 'aria-label': 'the plan', onsubmit: e => e.preventDefault() }, FIELDS.map(fieldPart), make('div', { class: 'field' }, make('label', { for: 'others' }, 'other options of orrery plan'), ask.others)),
    make('p', { class: 'command' }, ask.command, ' ', copy), make('p', { class: 'state' }, ask.state), ask.place);
}

// The program is packed by gzip and spelled in base64.
async function unpack() {
  const text = document.getElementById('program').textContent, letters = atob(text), packed = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) packed[i] = letters.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return WebAssembly.compile(await new Response(stream).arrayBuffer());
}

async function startAsking() {
  const given = wordsOfAddress();
  if (given) fieldsOfWords(given);
  buildFields();
  changed();
  window.addEventListener('hashchange', () => { const words = wordsOfAddress(); if (words && commandOf(words) !== ask.command.textContent) { fieldsOfWords(words); changed(); } });
  try {
    ask.module = await unpack();
  } catch (error) {
    ask.state.textContent = 'This browser cannot run the program: ' + error.message;
    return;
  }
  newWorker();
  askFor(ask.next || { words: wordsOfFields(), film: false });
}
startAsking();
