// 50_cards.js -- the cards beside the mesh: details, memory, blocks, shares of the time, losses, checks, notes.
function card(title, wide, ...children) {
  return make('section', { class: wide ? 'wide' : '', 'aria-label': title }, title ? make('h2', {}, title) : null, children);
}

function table(rows) {
  return make('table', {}, rows.map(r => make('tr', {}, make('th', { scope: 'row' }, r[0]), make('td', {}, r[1]))));
}

// ---- details ----

function rowsOfPass(f, p) {
  const kind = f.raw.kinds[p[4]], rows = [['device', deviceText(f, p[0]).slice(7)]];
  if (f.raw.devices[p[0]].has) rows.push(['it has', f.raw.devices[p[0]].has]);
  rows.push(['kind', kind.name]);
  if (p[5] >= 0) rows.push(['microbatch', String(p[5])]);
  if (p[6] !== -2) rows.push(['layer', p[6] === -1 ? 'embedding' : String(p[6])]);
  rows.push(['from', timeText(f, p[2])], ['until', timeText(f, p[3])], ['takes', lengthText(f, p[3] - p[2])]);
  if (p[7] >= 0) f.raw.details[p[7]].rows.forEach(r => rows.push(r));
  return rows;
}

function rowsOfCheck(c) {
  const number = x => x === undefined || x === null ? 'not known' : x.toExponential(1);
  const rows = [['device', c.device < 0 ? 'all' : String(c.device)]];
  if (c.error !== undefined || c.bound !== undefined) rows.push(['error', number(c.error) + ', norm over norm'], ['bound', number(c.bound)]);
  if (c.first) rows.push(['first wrong element', c.first]);
  if (c.evidence) rows.push(['evidence', c.evidence]);
  if (c.diagnosis) rows.push(['diagnosis', c.diagnosis]);
  return rows;
}

function detailsPart() {
  const body = make('div', { 'aria-live': 'polite' });
  const part = {
    node: card('Details', false, body),
    chosen(it) {
      body.textContent = '';
      if (!it) { body.append(make('p', { class: 'soft' }, 'Click a pass on the timeline, a tile, or a red tensor. Keys: space plays, \u2190 \u2192 go from event to event, Home and End, + and \u2212 zoom.')); return; }
      const f = it.film;
      if (it.pass) body.append(make('p', { class: 'title' }, make('i', { class: 'key', style: 'background:' + colourName(f, it.pass[4]) }), passText(f, it.pass)), table(rowsOfPass(f, it.pass)));
      else if (it.check) body.append(make('p', { class: 'title ' + (it.check.holds ? '' : 'bad') }, (it.check.holds ? '\u2713 ' : '\u2717 ') + it.check.tensor), table(rowsOfCheck(it.check)));
      else if (it.message) {
        const m = it.message;
        body.append(make('p', { class: 'title' }, f.raw.kinds[m[5]].name), table([['from', deviceText(f, m[0])], ['to', deviceText(f, m[1])], ['bytes', bytesText(m[4]) + ' (' + m[4] + ')'],
          ['sent', timeText(f, m[2])], ['arrives', timeText(f, m[3])], ['takes', lengthText(f, m[3] - m[2])]]));
      } else {
        const d = f.raw.devices[it.device], rows = [['place', d.place]], s = f.raw.shares && f.raw.shares[it.device];
        if (d.has) rows.push(['it has', d.has]);
        rows.push(['now', doingAt(f, it.device, page.time) ? passText(f, doingAt(f, it.device, page.time)) : 'idle']);
        if (s) SHARES.forEach((name, k) => rows.push([name, lengthText(f, s[k]) + percent(s[k], f.end)]));
        body.append(make('p', { class: 'title' }, 'device ' + it.device), table(rows));
      }
    },
  };
  part.chosen(null);
  return part;
}

// ---- shares of the time ----

const SHARES = ['computing', 'messages, not hidden', 'idle'];
function percent(part, all) { return all > 0 ? ' (' + Math.round(100 * part / all) + ' %)' : ''; }

// The films' bars have one scale, so that the longer film has the longer bar.
function sharesCard() {
  const body = make('div', { class: 'shares' });
  page.films.forEach((f, i) => {
    const shares = f.raw.shares || [], all = [0, 0, 0];
    if (!shares.length) return;
    shares.forEach(s => s.forEach((x, k) => { all[k] += x / shares.length; }));
    const bar = make('div', { class: 'stack', role: 'img', 'aria-label': SHARES.map((name, k) => name + ' ' + lengthText(f, all[k])).join(', ') });
    all.forEach((x, k) => bar.append(make('i', { class: 'share' + k, style: 'width:' + (100 * x / page.end).toFixed(3) + '%' })));
    body.append(...[page.films.length > 1 ? make('p', { class: 'name' }, 'ABCD'[i] + '  ' + f.raw.title) : null, bar,
      make('p', { class: 'soft' }, SHARES.map((name, k) => make('span', {}, make('i', { class: 'key share' + k }), name + ' ' + lengthText(f, all[k]) + percent(all[k], f.end))))].filter(Boolean));
  });
  return body.childNodes.length ? card('Where the time goes' + (page.films.some(f => f.devices > 1) ? ' (mean of the devices)' : ''), false, body) : null;
}

// ---- memory ----

function memoryPart(f, letter) {
  const kinds = f.raw.memory && f.raw.memory.length ? f.raw.memory[0].kinds : [];
  if (!kinds.length || !(f.most > 0)) return null;
  const bars = f.raw.devices.map((d, i) => {
    const pieces = kinds.map((k, n) => make('i', { class: 'm' + n })), text = make('span', { class: 'amount' });
    return { node: make('div', { class: 'bar' }, make('span', { class: 'who' }, String(i)), make('div', { class: 'stack' }, pieces), text), pieces, text, shown: null };
  });
  const keys = make('p', { class: 'soft' }, kinds.map((k, n) => make('span', {}, make('i', { class: 'key m' + n }), k)));
  return {
    node: card('Memory now' + letter, f.devices > 16, make('div', { class: 'bars' + (f.devices > 16 ? ' many' : '') }, bars.map(b => b.node)), keys),
    time(t) {
      bars.forEach((b, i) => {
        const m = memoryAt(f, i, t);
        if (m === b.shown) return;
        b.shown = m;
        b.pieces.forEach((p, k) => { p.style.width = (m ? 100 * m[k + 1] / f.most : 0).toFixed(2) + '%'; });
        b.text.textContent = m ? amountText(f, sum(m.slice(1))) : '';
      });
    },
  };
}

// ---- blocks ----

function cellsPart(f, letter) {
  if (!f.columns.length) return null;
  const all = [], states = ['plain', 'part', 'whole', 'wrong'];
  const body = make('table', { class: 'cells' }, make('tr', {}, make('td', {}), f.columns.map(c => make('th', { scope: 'col' }, c))));
  f.raw.devices.forEach((d, i) => {
    const row = make('tr', {}, make('th', { scope: 'row', title: d.place }, String(i)));
    f.columns.forEach((c, k) => { const td = make('td', {}); all.push({ td, shown: undefined, device: i, column: k }); row.append(td); });
    body.append(row);
  });
  return {
    node: card('What each device has now' + letter, true, make('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'what each device has' }, body)),
    time(t) {
      all.forEach(one => {
        const c = cellAt(f, one.device, one.column, t);
        if (c === one.shown) return;
        const fresh = one.shown !== undefined;
        one.shown = c;
        one.td.textContent = c ? c[3] : '';
        one.td.className = (c ? states[c[4]] : '') + (fresh ? ' fresh' : '');
      });
    },
  };
}

// ---- losses ----

function lossesPart() {
  const films = page.films.filter(f => (f.raw.losses || []).length > 1);
  if (!films.length) return null;
  const canvas = make('canvas', { class: 'chart', role: 'img', 'aria-label': 'losses: ' + films.map(f => 'from ' + digits(f.raw.losses[0]) + ' to ' + digits(f.raw.losses[f.raw.losses.length - 1]) + ' in ' + f.raw.losses.length + ' steps').join('; ') });
  return {
    node: card('Loss of each step', false, canvas),
    size() {
      const scale = window.devicePixelRatio || 1, width = canvas.clientWidth || 300, height = 150, c = canvas.getContext('2d');
      canvas.width = width * scale; canvas.height = height * scale;
      c.setTransform(scale, 0, 0, scale, 0, 0); c.clearRect(0, 0, width, height);
      const all = films.flatMap(f => f.raw.losses).filter(x => x !== null), most = Math.max(...all), least = Math.min(...all);
      const steps = Math.max(...films.map(f => f.raw.losses.length)), y = x => 8 + (most > least ? (most - x) / (most - least) : 0.5) * (height - 32);
      const x = i => 40 + (steps > 1 ? i / (steps - 1) : 0.5) * (width - 52);
      c.fillStyle = page.soft; c.font = '11px system-ui,sans-serif'; c.textBaseline = 'middle';
      c.fillText(most.toPrecision(4), 0, 9); c.fillText(least.toPrecision(4), 0, height - 24);
      c.fillText('step 1', 40, height - 7); c.textAlign = 'right'; c.fillText(String(steps), width - 8, height - 7); c.textAlign = 'left';
      c.strokeStyle = page.line; c.strokeRect(36.5, 2.5, width - 44, height - 21);
      films.forEach((f, k) => {
        c.strokeStyle = page.colours[k % PALETTE]; c.lineWidth = 2; c.beginPath();
        f.raw.losses.forEach((v, i) => { if (v !== null) c.lineTo(x(i), y(v)); });
        c.stroke();
      });
    },
  };
}

// ---- checks and notes ----

function checksCard(f, letter) {
  const checks = f.raw.checks || [];
  if (!checks.length) return null;
  const red = checks.filter(c => !c.holds), shown = red.length ? red : checks, name = red.length ? 'wrong' : 'right';
  const buttons = shown.slice(0, 60).map(c => make('li', {}, make('button', { type: 'button', class: 'tensor ' + name, onclick: () => choose({ film: f, check: c }) },
    (c.holds ? '\u2713 ' : '\u2717 ') + c.tensor, make('span', {}, (c.device >= 0 ? 'device ' + c.device : '') + (c.error !== undefined ? ' \u00b7 ' + c.error.toExponential(1) + (c.bound !== undefined ? ' of ' + c.bound.toExponential(1) : '') : '')))));
  const lesson = f.raw.kind === 'lesson', told = lesson && red.length ? red[0].diagnosis : red.length ? 'wrong tensors, the first in order of execution first:' : 'all tensors are within their bounds; the largest errors:';
  return card((lesson ? 'What the judge says' : 'Check against one device') + letter, false, make('p', { class: red.length ? 'bad' : 'good' }, told), make('ul', { class: 'tensors' }, buttons));
}

function notesCard() {
  const notes = page.films.flatMap((f, i) => f.raw.notes.map(n => (page.films.length > 1 ? 'ABCD'[i] + ': ' : '') + n));
  return notes.length ? card('Notes', true, make('ul', { class: 'soft' }, notes.map(n => make('li', {}, n)))) : null;
}
