// 10_data.js -- films as the page uses them: lists by device, what holds at a time.  The other scripts call these functions.
'use strict';

// Make an element: its attributes, then its children; a text becomes a text node, never markup.
function make(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const key in attributes || {}) {
    const value = attributes[key];
    if (key.startsWith('on')) e.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) e.setAttribute(key, value === true ? '' : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) e.append(child);
  return e;
}

// The last index with value(index) <= t, of ascending values; -1: none.
function lastUntil(count, value, t) {
  let low = 0, high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (value(middle) <= t) low = middle + 1; else high = middle;
  }
  return low - 1;
}

const BUCKETS = 400;            // parts of the time, each with the messages that are on their way in it

// One film with its indices.
function indexFilm(raw) {
  const devices = raw.devices.length, lanes = Math.max(1, raw.lanes.length);
  const f = { raw, devices, lanes, end: raw.end, byLane: [], cells: [], buckets: [], columns: raw.cells ? raw.cells.columns : [] };
  for (let i = 0; i < devices * lanes; i++) f.byLane.push([]);
  raw.passes.forEach(p => f.byLane[p[0] * lanes + p[1]].push(p));
  for (let i = 0; i <= BUCKETS; i++) f.buckets.push([]);
  raw.messages.forEach(m => {
    for (let b = bucketOf(f, m[2]); b <= bucketOf(f, m[3]); b++) f.buckets[b].push(m);
  });
  for (let i = 0; i < devices * f.columns.length; i++) f.cells.push([]);
  if (raw.cells) raw.cells.rows.forEach(c => f.cells[c[1] * f.columns.length + c[2]].push(c));
  f.most = 0;
  (raw.memory || []).forEach(m => m.rows.forEach(r => { f.most = Math.max(f.most, sum(r.slice(1))); }));
  const times = new Set([0, raw.end]);
  raw.passes.forEach(p => { times.add(p[2]); times.add(p[3]); });
  raw.messages.forEach(m => { times.add(m[2]); times.add(m[3]); });
  if (raw.cells) raw.cells.rows.forEach(c => times.add(c[0]));
  f.times = [...times].sort((a, b) => a - b);
  f.red = new Map();
  (raw.checks || []).forEach(c => { if (!c.holds) f.red.set(c.device, (f.red.get(c.device) || 0) + 1); });
  return f;
}

function bucketOf(f, t) { return f.end > 0 ? Math.min(BUCKETS, Math.floor(t / f.end * BUCKETS)) : 0; }
function sum(list) { return list.reduce((a, b) => a + b, 0); }

// The pass of a device's lane at a time, or null.  A pass that began earlier and goes on is found behind short ones.
function passAt(f, device, lane, t) {
  const list = f.byLane[device * f.lanes + lane];
  for (let i = lastUntil(list.length, k => list[k][2], t), tries = 0; i >= 0 && tries < 8; i--, tries++)
    if (list[i][3] > t || (list[i][3] === t && t === f.end)) return list[i];
  return null;
}

// What a device does at a time: the pass of its first busy lane, or null.
function doingAt(f, device, t) {
  for (let lane = 0; lane < f.lanes; lane++) {
    const p = passAt(f, device, lane, t);
    if (p) return p;
  }
  return null;
}

function messagesAt(f, t) { return f.buckets[bucketOf(f, t)].filter(m => m[2] <= t && (t < m[3] || (t === m[2] && t === m[3]))); }

function memoryAt(f, device, t) {
  const rows = f.raw.memory && f.raw.memory[device] ? f.raw.memory[device].rows : [];
  const i = lastUntil(rows.length, k => rows[k][0], t);
  return i < 0 ? null : rows[i];
}

function cellAt(f, device, column, t) {
  const list = f.cells[device * f.columns.length + column];
  const i = lastUntil(list.length, k => list[k][0], t);
  return i < 0 ? null : list[i];
}

// ---- numbers for people ----

function digits(x) { return x >= 100 || x === Math.round(x) ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toFixed(2); }

const TIMES = [['s', 1e12], ['ms', 1e9], ['us', 1e6], ['ns', 1e3], ['ps', 1]];

function timeText(f, t) {
  if (f.raw.unit !== 'ps') return 'tick ' + digits(t);
  const unit = TIMES.find(u => Math.abs(t) >= u[1]) || TIMES[4];
  return t === 0 ? '0' : digits(t / unit[1]) + ' ' + unit[0];
}

function lengthText(f, t) { return f.raw.unit === 'ps' ? timeText(f, t) : digits(t) + (t === 1 ? ' tick' : ' ticks'); }

function bytesText(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  while (n >= 1024 && i < 4) { n /= 1024; i++; }
  return digits(n) + ' ' + units[i];
}

// A schedule counts microbatches and knows no bytes.
function amountText(f, n) { return f.raw.kind === 'schedule' ? digits(n) : bytesText(n); }

function layerText(layer) { return layer === -1 ? 'embedding' : layer >= 0 ? 'layer ' + layer : ''; }

// "forward, microbatch 3, layer 2".
function passText(f, p) {
  const kind = f.raw.kinds[p[4]], detail = p[7] >= 0 ? f.raw.details[p[7]] : null;
  if (detail && detail.title) return detail.title + (p[5] >= 0 ? ', microbatch ' + p[5] : '');
  return [kind.name, p[5] >= 0 ? 'microbatch ' + p[5] : '', layerText(p[6])].filter(Boolean).join(', ');
}

function deviceText(f, d) { const place = f.raw.devices[d].place; return 'device ' + d + (place ? ' (' + place + ')' : ''); }
