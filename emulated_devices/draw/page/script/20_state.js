// 20_state.js -- what the page shows now, its colours, and who redraws.  The scripts behind it read and change `page`.
const page = {
  films: [], words: [], time: 0, end: 0, view: [0, 1], playing: false, speed: 1, last: 0, chosen: null,
  colours: [], parts: [],       // parts: { time(t), size() } of what is drawn
};
const PALETTE = 8, SECONDS = 24;    // colours, and one more for what waits; how long a film plays at speed 1

// A kind has one colour on the whole page, by its name; passes of a pipeline have theirs on every page.
const COLOUR_OF_MARK = { F: 0, B: 1, I: 1, W: 2, U: 4 };
function numberColours() {
  page.number = new Map();
  let messages = 0, others = 0;
  page.films.forEach(f => f.raw.kinds.forEach(k => {
    if (page.number.has(k.name)) return;
    const known = k.of === 'compute' ? COLOUR_OF_MARK[k.mark] : undefined;
    page.number.set(k.name, known !== undefined ? known : k.of === 'wait' ? PALETTE : k.of === 'message' ? [3, 5, 6, 7][messages++ % 4] : others++ % PALETTE);
  }));
}
function colourOf(f, kind) { return page.colours[page.number.get(f.raw.kinds[kind].name)]; }
function colourName(f, kind) { return 'var(--c' + page.number.get(f.raw.kinds[kind].name) + ')'; }

function readColours() {
  const style = getComputedStyle(document.documentElement);
  const get = name => style.getPropertyValue(name).trim();
  page.colours = [];
  for (let i = 0; i <= PALETTE; i++) page.colours.push(get('--c' + i));
  page.ink = get('--ink'); page.soft = get('--soft'); page.line = get('--line'); page.paper = get('--paper');
  page.card = get('--card'); page.bad = get('--bad'); page.on = get('--on'); page.idle = get('--idle');
}

// Draw what depends on the time.  @return milliseconds that it took.
function drawTime() {
  const begin = performance.now();
  for (const part of page.parts) if (part.time) part.time(page.time);
  return performance.now() - begin;
}

// Draw what depends on widths, colours and the part of the time that is seen.
function drawAll() {
  for (const part of page.parts) if (part.size) part.size();
  drawTime();
}

function setTime(t) {
  page.time = Math.max(0, Math.min(page.end, t));
  const [a, b] = page.view;
  if (page.time < a || page.time > b) {
    const width = b - a, from = Math.max(0, Math.min(page.end - width, page.time - width * 0.1));
    page.view = [from, from + width];
    drawAll();
  } else drawTime();
}

// The next event of any film, forward or back.
function stepTime(way) {
  let next = way > 0 ? page.end : 0;
  for (const f of page.films) {
    const i = lastUntil(f.times.length, k => f.times[k], page.time);
    const at = way > 0 ? f.times[i + 1] : f.times[f.times[i] === page.time ? i - 1 : i];
    if (at !== undefined) next = way > 0 ? Math.min(next, at) : Math.max(next, at);
  }
  setTime(next);
}

function zoom(factor) {
  const [a, b] = page.view, width = Math.max(page.end / 2000, Math.min(page.end, (b - a) * factor));
  const part = b > a ? (page.time - a) / (b - a) : 0;
  const from = Math.max(0, Math.min(page.end - width, page.time - part * width));
  page.view = [from, from + width];
  drawAll();
}

// ---- playing ----

function frame(now) {
  if (!page.playing) return;
  const passed = page.last ? Math.min(100, now - page.last) : 0;
  page.last = now;
  setTime(page.time + page.end * page.speed * passed / 1000 / SECONDS);
  if (page.time >= page.end) play(false);
  else requestAnimationFrame(frame);
}

function play(on) {
  page.playing = on;
  page.last = 0;
  if (on && page.time >= page.end) setTime(0);
  if (page.onplay) page.onplay(on);
  if (on) requestAnimationFrame(frame);
}

// ---- choosing ----

// What the details are about: { film, pass } or { film, check } or { film, device } or { film, message }.
function choose(chosen) {
  page.chosen = chosen;
  if (page.onchoose) page.onchoose(chosen);
  for (const part of page.parts) if (part.chosen) part.chosen(chosen);
}
