// 60_page.js -- builds the page from its films, and listens to keys.  orrery.show(data) shows other films.
function controls() {
  const f = page.films[0];
  const slider = make('input', { type: 'range', min: '0', max: '1000', step: '1', value: '0', 'aria-label': 'virtual time', oninput: e => setTime(page.end * e.target.value / 1000) });
  const button = (text, name, act, more) => make('button', { type: 'button', title: name, 'aria-label': name, onclick: act, ...more }, text);
  const playing = button('\u25b6', 'play (space)', () => play(!page.playing), { class: 'play' }), now = make('output', { class: 'now' });
  const speed = make('select', { 'aria-label': 'speed', onchange: e => { page.speed = Number(e.target.value); } },
    [['0.25', '\u00bc\u00d7'], ['1', '1\u00d7'], ['4', '4\u00d7']].map(s => make('option', { value: s[0], selected: s[0] === '1' }, s[1])));
  page.onplay = on => { playing.textContent = on ? '\u275a\u275a' : '\u25b6'; playing.setAttribute('aria-label', on ? 'pause (space)' : 'play (space)'); };
  return {
    node: make('div', { class: 'controls', role: 'group', 'aria-label': 'time' }, button('|\u25c2', 'to the begin (Home)', () => setTime(0)), button('\u25c2', 'to the event before (left arrow)', () => stepTime(-1)), playing,
      button('\u25b8', 'to the next event (right arrow)', () => stepTime(1)), button('\u25b8|', 'to the end (End)', () => setTime(page.end)), slider, now, speed,
      button('+', 'zoom in (+)', () => zoom(0.5)), button('\u2212', 'zoom out (-)', () => zoom(2)), button('\u2194', 'all of the time (0)', () => zoom(1e9))),
    time(t) {
      slider.value = page.end > 0 ? Math.round(t / page.end * 1000) : 0;
      now.textContent = timeText(f, t) + ' of ' + lengthText(f, page.end);
      slider.setAttribute('aria-valuetext', now.textContent);
    },
  };
}

function legend() {
  const seen = new Map();
  page.films.forEach(f => f.raw.kinds.forEach((k, i) => { if (!seen.has(k.name)) seen.set(k.name, [f, i, k]); }));
  return make('p', { class: 'keys' }, [...seen.values()].map(([f, i, k]) => make('span', {}, make('i', { class: 'key', style: 'background:' + colourName(f, i) }), k.name + (k.mark ? ' (' + k.mark + ')' : ''))),
    make('span', {}, make('i', { class: 'key idle' }), 'idle'));
}

function facts(f) {
  const mesh = f.raw.axes.filter(a => a[1] > 1).map(a => a[0] + ' ' + a[1]).join(' \u00d7 ');
  const list = [[f.devices === 1 ? 'device' : 'devices', f.devices + (mesh ? ' (' + mesh + ')' : '')], ['ends at', lengthText(f, f.end)]];
  if (f.raw.marks && f.raw.marks.length > 1) list.push(['steps', String(f.raw.marks.length)]);
  if (f.raw.messages.length) list.push(['messages', f.raw.sent[0] + (f.raw.kind === 'schedule' ? '' : ', ' + bytesText(f.raw.sent[1]))]);
  const losses = (f.raw.losses || []).filter(x => x !== null);
  if (losses.length) list.push(['loss', losses.length > 1 ? losses[0].toPrecision(4) + ' \u2192 ' + losses[losses.length - 1].toPrecision(4) : losses[0].toPrecision(4)]);
  const checks = f.raw.checks || [], red = checks.filter(c => !c.holds).length;
  if (checks.length) list.push(['check', red ? '\u2717 wrong' : '\u2713 equal to one device']);
  list.push(['made by', 'orrery ' + f.raw.made_by]);
  return make('p', { class: 'facts' }, list.map(x => make('span', {}, make('b', {}, x[0] + ' '), x[1])));
}

function build() {
  const root = document.getElementById('page'), several = page.films.length > 1;
  root.textContent = '';
  page.parts = [];
  const add = part => { if (part) page.parts.push(part); return part ? part.node : null; };
  const letter = i => several ? ' \u00b7 ' + 'ABCD'[i] : '';
  if (!page.films.some(f => f.devices > 0)) {
    root.append(make('h1', {}, page.films.length ? page.films[0].raw.title : 'Orrery'), make('p', {}, 'This film has no devices: there is nothing to draw.'), notesCard() || '');
    return;
  }
  const first = page.films[0].raw;
  document.title = several ? 'Runs side by side' : first.title;
  root.append(make('header', {}, make('h1', {}, several ? 'Runs side by side, on one axis of time' : first.title), several ? page.films.map((f, i) => make('div', { class: 'run' }, make('b', {}, 'ABCD'[i] + '  ' + f.raw.title), facts(f))) : facts(page.films[0]),
    page.words.map(w => make('p', { class: 'words', role: 'note' }, w))));
  const parts = make('div', { class: 'parts' });
  root.append(add(controls()), parts);
  const meshes = make('div', { class: 'meshes' }, page.films.map((f, i) => make('div', {}, several ? make('p', { class: 'name' }, 'ABCD'[i] + '  ' + f.raw.title) : null, add(meshPart(f)))));
  parts.append(make('section', { class: several ? 'wide' : 'main', 'aria-label': 'mesh' }, make('h2', {}, 'What each device does now'), meshes), add(detailsPart()));
  if (several) parts.append(sharesCard() || '');
  const lines = make('section', { class: 'wide', 'aria-label': 'timeline' }, make('h2', {}, 'Virtual time'));
  page.films.forEach((f, i) => lines.append(several ? make('p', { class: 'name' }, 'ABCD'[i] + '  ' + f.raw.title) : '', add(timelinePart(f))));
  lines.append(legend(), make('p', { class: 'soft' }, 'A row is a device' + (page.films.some(f => f.raw.messages.length) ? '; the strips under it are what it sends and receives' : '') + (page.films.some(f => f.raw.passes.some(p => p[5] >= 0)) ? '. Microbatches take turns in strength' : '') + '. Ctrl and the wheel zoom, shift and the wheel move.'));
  parts.append(lines);
  page.films.forEach((f, i) => parts.append(add(cellsPart(f, letter(i))) || ''));
  const wrong = f => (f.raw.checks || []).some(c => !c.holds);
  page.films.forEach((f, i) => parts.append(wrong(f) && checksCard(f, letter(i)) || ''));
  page.films.forEach((f, i) => parts.append(add(memoryPart(f, letter(i))) || ''));
  if (!several) parts.append(sharesCard() || '');
  parts.append(add(lossesPart()) || '');
  page.films.forEach((f, i) => parts.append(!wrong(f) && checksCard(f, letter(i)) || ''));
  parts.append(notesCard() || '');
}

// Data of the page: { films, words }.  The time and what is seen of it stay if they can.
const orrery = window.orrery = {
  show(data) {
    const before = page.end, seen = page.view, time = page.time;
    page.films = data.films.map(indexFilm);
    page.words = data.words || [];
    page.end = Math.max(1, ...page.films.map(f => f.end));
    numberColours();
    page.chosen = null;
    page.view = before === page.end ? seen : [0, page.end];
    readColours();
    build();
    page.time = before === page.end ? time : Math.min(time, page.end);
    drawAll();
  },
  // Milliseconds of script for each of some frames, for tests.
  measure(frames) {
    const took = [];
    for (let i = 0; i < frames; i++) { page.time = page.end * (i + 0.5) / frames; took.push(drawTime()); }
    return took.sort((a, b) => a - b);
  },
};

function onKey(event) {
  const tag = event.target.tagName, key = event.key;
  if (event.ctrlKey || event.metaKey || event.altKey || tag === 'SELECT' || (tag === 'INPUT' && event.target.type !== 'range')) return;
  const acts = { ' ': () => play(!page.playing), ArrowRight: () => stepTime(1), ArrowLeft: () => stepTime(-1), Home: () => setTime(0), End: () => setTime(page.end),
                 '+': () => zoom(0.5), '=': () => zoom(0.5), '-': () => zoom(2), '0': () => zoom(1e9), Escape: () => choose(null),
                 Enter: () => { const f = page.films[0], c = page.chosen; const p = c && f && doingAt(c.film, c.pass ? c.pass[0] : c.device || 0, page.time); if (p) choose({ film: c.film, pass: p }); } };
  if ((key === ' ' || key === 'Enter') && tag === 'BUTTON') return;
  if (!acts[key] || !page.films.length) return;
  event.preventDefault();
  acts[key]();
}

function start() {
  const data = document.getElementById('data');
  document.addEventListener('keydown', onKey);
  let waiting = 0;
  window.addEventListener('resize', () => { clearTimeout(waiting); waiting = setTimeout(drawAll, 60); });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { readColours(); drawAll(); });
  const given = data ? JSON.parse(data.textContent) : { films: [] };
  if (given.films.length) orrery.show(given);
  else if (location.protocol === 'http:') live();
  // page.html#t=0.4 begins there, so that a moment can be linked.
  const at = /[#&]t=([0-9.]+)/.exec(location.hash);
  if (at && page.films.length) setTime(page.end * Number(at[1]));
}
