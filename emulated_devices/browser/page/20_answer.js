// 20_answer.js -- draws what the program has answered: figures, memory of each device, its own report.  30_ask.js calls showAnswer().

function shortNumber(x, unit) {
  const at = ['', 'K', 'M', 'G', 'T', 'P'];
  let i = 0;
  while (x >= 1000 && i < at.length - 1) { x /= 1000; i++; }
  return x.toPrecision(3).replace(/\.0+$/, '') + ' ' + at[i] + unit;
}
const percentText = x => (100 * x).toFixed(1) + ' %';
function sizeText(bytes) {
  const at = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let i = 0;
  while (bytes >= 1024 && i < at.length - 1) { bytes /= 1024; i++; }
  return (i ? bytes.toPrecision(bytes < 1000 ? 3 : 4) : bytes) + ' ' + at[i];
}
function stepText(ps) {
  const s = ps / 1e12;
  return s >= 1 ? s.toPrecision(4) + ' s' : s >= 1e-3 ? (1e3 * s).toPrecision(4) + ' ms' : (1e6 * s).toPrecision(4) + ' \u00b5s';
}

// The part of the report that begins with this word, with its lines below.
function reportLines(text, word) {
  const lines = text.split('\n'), at = lines.findIndex(l => l.startsWith(word + ' '));
  if (at < 0) return [];
  let end = at + 1;
  while (end < lines.length && /^ {8}/.test(lines[end])) end++;
  return lines.slice(at, end);
}

const SHOWN_BARS = 32;

// A bar is the peak of all that a device holds.  Its kinds have peaks at other times, so only those of the fullest
// device, which the program has noted at its peak, add up to it.
function memoryCard(d) {
  const limit = d.plan.memory_bytes || 0, most = Math.max(limit, ...d.devices.map(x => x.peak_bytes.total));
  const axes = Object.keys(d.mesh).filter(a => d.mesh[a] > 1 && (!d.plan.folding || d.plan.folding.every[a] > 1)), peak = d.plan.peak;
  const bar = (where, parts, total, label) => {
    const over = limit > 0 && total > limit;
    return make('div', { class: 'bar' + (over ? ' over-limit' : ''), role: 'img', tabindex: '0', 'aria-label': label + (limit ? (over ? ', more than ' : ' of ') + sizeText(limit) : '') }, make('span', { class: 'who' }, where),
      make('span', { class: 'stack' }, parts.map(([bytes, kind]) => make('i', { class: 'm' + kind, style: 'width:' + (100 * bytes / most).toFixed(3) + '%' })), limit ? make('b', { class: 'limit', style: 'left:' + (100 * limit / most).toFixed(3) + '%' }) : null),
      make('span', { class: 'amount' }, (over ? '\u2717 ' : '') + sizeText(total)));
  };
  const rows = d.devices.slice(0, SHOWN_BARS).map(x => {
    const where = axes.map(a => a + '=' + x[a]).join(' ') || 'all', total = x.peak_bytes.total;
    return bar(where, [[total, 0]], total, 'device ' + x.rank + ', ' + where + ': ' + sizeText(total));
  });
  const kinds = Object.keys(peak.held), held = kinds.map((k, i) => [peak.held[k].bytes, i]);
  const doing = [peak.pass, peak.microbatch !== undefined ? 'microbatch ' + peak.microbatch : '', peak.layer !== undefined ? 'layer ' + peak.layer : peak.part || '', peak.tensor].filter(x => x).join(', ');
  return make('section', { class: 'wide', 'aria-label': 'memory' }, make('h2', {}, 'Peak memory of each device' + (limit ? '; the line is its limit, ' + sizeText(limit) : '')), make('div', { class: 'bars' }, rows),
    d.devices.length > SHOWN_BARS ? make('p', { class: 'soft' }, 'The first ' + SHOWN_BARS + ' of ' + d.devices.length + ' sorts of devices; the report below has all.') : null,
    make('h2', { class: 'next' }, 'What device ' + peak.device + ' holds at its peak (' + doing + ')'), make('div', { class: 'bars' }, bar('device ' + peak.device, held, peak.bytes, kinds.map(k => k + ' ' + sizeText(peak.held[k].bytes)).join(', '))),
    make('p', { class: 'keys' }, kinds.map((k, i) => make('span', {}, make('i', { class: 'key m' + i }), k + ' ' + sizeText(peak.held[k].bytes)))));
}

function figuresCard(d) {
  const v = d.virtual_speed || {}, s = v.model_flops_utilization, rate = v.flops_per_second_per_device;
  const devices = Object.values(d.mesh).reduce((a, b) => a * b, 1);
  const sent = x => Object.values(x.sent).reduce((a, k) => [a[0] + k.messages, a[1] + k.bytes], [0, 0]);
  const most = d.devices.map(sent).reduce((a, b) => (b[1] > a[1] ? b : a), [0, 0]);
  const list = [
    ['a step', stepText(d.virtual_step_ps), 'virtual time on ' + d.cluster],
    ['tokens a second', v.tokens_per_second_per_device ? shortNumber(v.tokens_per_second_per_device, '') : '\u2013', 'each device'],
    ['MFU', s ? percentText(s.attention_by_half) : '\u2013', rate ? shortNumber(rate.attention_by_half, 'FLOP/s') + ' a device' : ''],
    ['bubble', d.plan.bubble !== undefined ? percentText(d.plan.bubble) : '\u2013', 'waiting for other stages'],
    ['exposed', d.plan.exposed_communication !== undefined ? percentText(d.plan.exposed_communication) : '\u2013', 'waiting for messages'],
    ['messages', shortNumber(most[0], ''), 'at most ' + sizeText(most[1]) + ' a device'],
    ['devices', String(d.plan.folding ? d.plan.folding.classes * d.plan.folding.devices_of_a_class : devices), d.plan.folding ? d.plan.folding.classes + (d.plan.folding.classes === 1 ? ' sort' : ' sorts') : ''],
    ['microbatches', String(d.micro), d.batch + ' sequences of ' + d.seq + ' tokens'],
  ];
  return make('dl', { class: 'figures' }, list.map(([name, value, more]) => make('div', {}, make('dt', {}, name), make('dd', {}, value), make('dd', { class: 'soft' }, more))));
}

// The verdict is the program's own sentence; a change that would fit is a button that makes the change.
function verdictCard(d, answer, change) {
  const lines = reportLines(answer.err, 'fits'), good = answer.status === 0;
  if (!lines.length) return null;
  const remedies = lines.slice(1).filter(l => l.includes(' a step ')).map(l => {
    const [figures, words] = [l.slice(0, l.indexOf(' a step ') + 7).trim(), l.slice(l.indexOf(' a step ') + 8).trim()];
    return make('li', {}, make('button', { type: 'button', onclick: () => change(words.split(/\s+/)) }, words), ' ' + figures.replace(/\s+/g, ' '));
  });
  const none = lines.slice(1).filter(l => !l.includes(' a step ') && !l.trim().endsWith(':')).map(l => l.trim()).join(' ');
  return make('div', { class: 'verdict ' + (good ? 'fits' : 'fails'), role: 'status' }, make('p', {}, (good ? '\u2713 ' : '\u2717 ') + lines[0].trim().replace(/\s+/g, ' ') + (none ? ' ' + none : '')), remedies.length ? [make('p', {}, 'what would fit:'), make('ul', {}, remedies)] : null);
}

// @param change  gets the words of a remedy.
function showAnswer(place, answer, change) {
  place.textContent = '';
  if (!answer.out) {
    const lines = answer.err.trim().split('\n'), at = lines.findIndex(l => l.startsWith('orrery:'));
    place.append(make('div', { class: 'verdict fails', role: 'alert' }, make('p', {}, '\u2717 ' + lines.slice(Math.max(0, at)).map(l => l.trim()).join(' '))));
    return null;
  }
  const d = JSON.parse(answer.out);
  place.append(verdictCard(d, answer, change) || '', figuresCard(d), make('div', { class: 'parts' }, memoryCard(d)),
    make('details', {}, make('summary', {}, 'The report, as a terminal shows it'), make('pre', { tabindex: '0', 'aria-label': 'report' }, answer.err)));
  return d;
}
