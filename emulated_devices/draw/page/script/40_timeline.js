// 40_timeline.js -- all devices of a film on an axis of time, which the films of a page share.
const LEFT_WIDE = 104, LEFT_SLIM = 34, AXIS = 22;

// A step between labels so that there are about `count` of them.
function niceStep(width, count) {
  const rough = width / Math.max(1, count), power = Math.pow(10, Math.floor(Math.log10(rough)));
  return power * [1, 2, 5, 10].find(k => k * power >= rough);
}

function tickText(f, t, step) {
  if (f.raw.unit !== 'ps') return String(Math.round(t * 100) / 100);
  const unit = TIMES.find(u => page.view[1] >= u[1]) || TIMES[4], places = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / unit[1]) - 1e-9)));
  return (t / unit[1]).toFixed(places) + ' ' + unit[0];
}

function timelinePart(f) {
  const canvas = make('canvas', { tabindex: '0', role: 'img', 'aria-label': 'timeline: a row for each device; arrow keys move the time, Enter shows the pass of the chosen device' });
  const head = make('div', { class: 'head' }), frameOfChosen = make('div', { class: 'choice', hidden: true }), tip = make('div', { class: 'tip', hidden: true });
  const node = make('div', { class: 'timeline' }, canvas, frameOfChosen, head, tip);
  const hasMessages = f.raw.messages.length > 0;
  let width = 0, height = 0, left = LEFT_WIDE, row = 0, lane = 0, strip = 0;
  const laneUsed = [];
  for (let k = 0; k < f.lanes; k++) laneUsed.push(f.byLane.some((list, i) => i % f.lanes === k && list.length > 0));
  const lanes = f.devices > 24 ? [0] : laneUsed.map((used, k) => used ? k : -1).filter(k => k >= 0);
  if (!lanes.length) lanes.push(0);

  const xOf = t => left + (t - page.view[0]) / (page.view[1] - page.view[0]) * (width - left - 8);
  const timeOf = x => page.view[0] + (x - left) / (width - left - 8) * (page.view[1] - page.view[0]);
  const yOf = (device, at) => AXIS + device * row + at * lane;

  function measure() {
    width = node.clientWidth || 600;
    left = width < 560 ? LEFT_SLIM : LEFT_WIDE;
    strip = hasMessages ? (f.devices > 24 ? 2 : 4) : 0;
    lane = f.devices > 48 ? 6 : f.devices > 24 ? 8 : f.devices > 12 ? 14 : lanes.length > 2 ? 14 : 20;
    row = lane * lanes.length + strip * 2 + (f.devices > 24 ? 1 : 4);
    height = AXIS + f.devices * row + 4;
  }

  function drawAxis(c) {
    const step = niceStep(page.view[1] - page.view[0], (width - left) / 96);
    c.font = '11px system-ui,sans-serif'; c.textBaseline = 'middle'; c.textAlign = 'center';
    for (let k = Math.ceil(page.view[0] / step); k * step <= page.view[1]; k++) {
      const x = xOf(k * step);
      c.fillStyle = page.line; c.fillRect(Math.round(x), AXIS - 5, 1, height - AXIS + 5);
      c.fillStyle = page.soft;
      const text = tickText(f, k * step, step), half = c.measureText(text).width / 2;
      if (x - half >= left - 20 && x + half <= width) c.fillText(text, x, 8);
    }
    (f.raw.marks || []).forEach((t, i) => {
      if (t < page.view[0] || t > page.view[1]) return;
      c.fillStyle = page.ink; c.globalAlpha = 0.45;
      c.fillRect(Math.round(xOf(t)), AXIS - 2, 1, height - AXIS); c.globalAlpha = 1;
    });
  }

  // What is narrower than a pixel is drawn once for each pixel.
  function drawPasses(c, device, at) {
    const list = f.byLane[device * f.lanes + lanes[at]], y = yOf(device, at), h = lane - 1;
    let until = -1, run = null;
    for (let i = Math.max(0, lastUntil(list.length, k => list[k][2], page.view[0]) - 8); i < list.length && list[i][2] <= page.view[1]; i++) {
      const p = list[i];
      if (p[3] < page.view[0]) continue;
      const x = Math.max(left, xOf(p[2])), end = Math.min(width - 8, xOf(p[3]));
      if (end < until + 0.35) continue;
      const w = Math.max(0.7, end - x - (end - x > 4 ? 1 : 0));
      c.globalAlpha = p[5] >= 0 && p[5] % 2 ? 0.72 : 1;
      c.fillStyle = colourOf(f, p[4]); c.fillRect(x, y, w, h);
      c.globalAlpha = 1; until = end;
      if (run && run.kind === p[4] && run.micro === p[5] && x - run.end < 6) run.end = end;
      else { label(c, run, y, h); run = { kind: p[4], micro: p[5], x, end }; }
    }
    label(c, run, y, h);
  }

  // Neighbours of one microbatch have one label, in their middle.
  function label(c, run, y, h) {
    if (!run || h < 11 || run.end - run.x < 12) return;
    const mark = f.raw.kinds[run.kind].mark, texts = run.micro >= 0 ? [mark + run.micro, String(run.micro)] : [mark];
    const text = texts.find(s => s && c.measureText(s).width <= run.end - run.x - 3);
    if (!text) return;
    const x = (run.x + run.end) / 2, w = c.measureText(text).width;
    c.fillStyle = colourOf(f, run.kind); c.fillRect(x - w / 2 - 2, y, w + 4, h);
    c.fillStyle = page.on; c.fillText(text, x, y + h / 2 + 0.5);
  }

  // A strip for what a device sends, and one for what it receives.
  function drawMessages(c) {
    if (!strip) return;
    const until = [];
    for (const m of f.raw.messages) {
      if (m[3] < page.view[0]) continue;
      if (m[2] > page.view[1]) break;
      const x = Math.max(left, xOf(m[2])), end = Math.min(width - 8, xOf(m[3]));
      [m[0], m[1]].forEach((device, side) => {
        if (end < (until[device * 2 + side] || 0) + 0.35) return;
        until[device * 2 + side] = end;
        c.fillStyle = colourOf(f, m[5]);
        c.fillRect(x, yOf(device, lanes.length) + side * strip, Math.max(0.7, end - x), strip - 1);
      });
    }
  }

  function draw() {
    measure();
    const scale = window.devicePixelRatio || 1, c = canvas.getContext('2d');
    canvas.width = Math.round(width * scale); canvas.height = Math.round(height * scale);
    canvas.style.height = height + 'px';
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.clearRect(0, 0, width, height);
    for (let d = 0; d < f.devices; d++) {
      c.fillStyle = page.idle; c.fillRect(left, yOf(d, 0), width - left - 8, lane * lanes.length - 1);
    }
    drawAxis(c);
    c.font = (lane > 16 ? 11 : 10) + 'px system-ui,sans-serif'; c.textAlign = 'center'; c.textBaseline = 'middle';
    for (let d = 0; d < f.devices; d++) for (let k = 0; k < lanes.length; k++) drawPasses(c, d, k);
    drawMessages(c);
    c.font = '11px system-ui,sans-serif'; c.textAlign = 'left';
    const every = Math.ceil(12 / row);
    for (let d = 0; d < f.devices; d += every) {
      const place = left === LEFT_WIDE ? f.raw.devices[d].place : '';
      c.fillStyle = f.red.has(d) ? page.bad : page.ink; c.fillText(String(d), 0, yOf(d, 0) + row / 2 - 1, 26);
      c.fillStyle = page.soft; c.fillText(place, 28, yOf(d, 0) + row / 2 - 1, left - 34);
    }
  }

  function under(event) {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const device = Math.floor((y - AXIS) / row), t = timeOf(x);
    if (device < 0 || device >= f.devices || x < left) return { t, device: -1, pass: null };
    const at = Math.floor((y - yOf(device, 0)) / lane);
    if (at < lanes.length) return { t, device, pass: passAt(f, device, lanes[at], t) };
    const slack = (page.view[1] - page.view[0]) / width, side = Math.floor((y - yOf(device, lanes.length)) / strip);
    return { t, device, pass: null, message: side < 2 ? f.raw.messages.find(m => m[side] === device && m[2] - slack <= t && t <= m[3] + slack) : undefined };
  }

  function hover(event) {
    const it = under(event), box = node.getBoundingClientRect();
    tip.hidden = !(it.pass || it.message);
    if (it.pass) tip.textContent = passText(f, it.pass) + ' \u00b7 ' + lengthText(f, it.pass[3] - it.pass[2]);
    if (it.message) tip.textContent = f.raw.kinds[it.message[5]].name + ': ' + it.message[0] + ' \u2192 ' + it.message[1] + ', ' + bytesText(it.message[4]) + ' \u00b7 ' + lengthText(f, it.message[3] - it.message[2]);
    if (tip.hidden) return;
    tip.style.left = Math.max(0, Math.min(width - tip.offsetWidth - 4, event.clientX - box.left + 12)) + 'px';
    tip.style.top = event.clientY - box.top + 14 + 'px';
  }

  canvas.addEventListener('mousemove', hover);
  canvas.addEventListener('mouseleave', () => { tip.hidden = true; });
  canvas.addEventListener('click', event => {
    const it = under(event);
    if (it.t >= 0 && it.t <= page.end) setTime(it.t);
    if (it.pass) choose({ film: f, pass: it.pass });
    else if (it.message) choose({ film: f, message: it.message });
    else if (it.device >= 0) choose({ film: f, device: it.device });
  });
  canvas.addEventListener('wheel', event => {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    if (event.ctrlKey) zoom(event.deltaY > 0 ? 1.25 : 0.8);
    else {
      const by = (page.view[1] - page.view[0]) * (event.deltaY || event.deltaX) / 1000;
      const from = Math.max(0, Math.min(page.end - (page.view[1] - page.view[0]), page.view[0] + by));
      page.view = [from, from + page.view[1] - page.view[0]];
      drawAll();
    }
  }, { passive: false });

  const part = {
    node,
    size() { draw(); part.chosen(page.chosen); },
    time(t) { head.style.transform = 'translateX(' + xOf(t).toFixed(1) + 'px)'; head.hidden = t < page.view[0] || t > page.view[1]; },
    chosen(it) {
      const p = it && it.film === f ? it.pass : null, at = p ? lanes.indexOf(p[1]) : -1;
      frameOfChosen.hidden = !p || at < 0 || p[3] < page.view[0] || p[2] > page.view[1];
      if (frameOfChosen.hidden) return;
      const x = Math.max(left, xOf(p[2])), end = Math.min(width - 8, xOf(p[3]));
      Object.assign(frameOfChosen.style, { left: x - 2 + 'px', width: Math.max(3, end - x) + 3 + 'px', top: yOf(p[0], at) - 2 + 'px', height: lane + 3 + 'px' });
    },
  };
  return part;
}
