// 30_mesh.js -- the mesh: a tile for each device with what it does now, and the messages between tiles.
function meshPart(f) {
  const raw = f.raw, rows = 1 + Math.max(0, ...raw.devices.map(d => d.row)), columns = 1 + Math.max(0, ...raw.devices.map(d => d.column));
  const small = columns > 8 || f.devices > 24, tiles = [];
  const grid = make('div', { class: 'tiles' + (small ? ' small' : ''), role: 'group', 'aria-label': 'devices: what each does now' });
  grid.style.gridTemplateColumns = 'repeat(' + columns + ',minmax(0,1fr))';
  raw.devices.forEach((d, i) => {
    const parts = { number: make('span', { class: 'number' }, String(i)), mark: make('b', {}), place: make('span', { class: 'place' }, d.place),
                    doing: make('span', { class: 'doing' }), memory: make('span', { class: 'memory' }, make('i', {})) };
    const red = f.red.get(i);
    const tile = make('button', { class: 'tile' + (red ? ' red' : ''), type: 'button', onclick: () => {
      const p = doingAt(f, i, page.time);
      choose(p ? { film: f, pass: p } : { film: f, device: i });
    } }, make('span', { class: 'top' }, parts.number, red ? make('span', { class: 'cross' }, '\u2717') : null, parts.mark),
      parts.place, parts.doing, f.most > 0 ? parts.memory : null);
    tile.style.gridRow = d.row + 1; tile.style.gridColumn = d.column + 1;
    tiles.push({ tile, parts, shown: undefined, level: -1 });
    grid.append(tile);
  });
  const canvas = make('canvas', { class: 'over', 'aria-hidden': 'true' });
  const field = make('div', { class: 'mesh' }, grid, canvas), count = make('p', { class: 'soft', 'aria-hidden': 'true' });
  let centre = [], width = 0, height = 0, dirty = true;

  function showTile(i, t) {
    const one = tiles[i], p = doingAt(f, i, t), key = p ? p : null;
    if (one.shown !== key) {
      one.shown = key;
      const text = p ? passText(f, p) : 'idle';
      one.tile.style.background = p ? colourName(f, p[4]) : '';
      one.tile.classList.toggle('busy', !!p);
      one.parts.mark.textContent = p ? raw.kinds[p[4]].mark + (p[5] >= 0 ? (small ? '' : ' ') + p[5] : '') : '';
      one.parts.doing.textContent = text;
      one.tile.setAttribute('aria-label', deviceText(f, i) + ': ' + text + (one.tile.classList.contains('red') ? '; has wrong tensors' : ''));
    }
    if (f.most > 0) {
      const m = memoryAt(f, i, t), level = m ? Math.round(sum(m.slice(1)) / f.most * 200) / 2 : 0;
      if (level !== one.level) { one.level = level; one.parts.memory.firstChild.style.width = level + '%'; }
    }
  }

  function showMessages(t) {
    const list = messagesAt(f, t), c = canvas.getContext('2d');
    if (!list.length && !dirty) return;
    c.clearRect(0, 0, width, height);
    dirty = list.length > 0;
    const labels = list.length <= 10 && !small && f.raw.kind !== 'schedule';
    list.forEach(m => {
      const a = centre[m[0]], b = centre[m[1]];
      if (!a || !b || a === b) return;
      const colour = colourOf(f, m[5]), dx = b[0] - a[0], dy = b[1] - a[1], bend = 0.16;
      const mx = (a[0] + b[0]) / 2 - dy * bend, my = (a[1] + b[1]) / 2 + dx * bend;
      const u = m[3] > m[2] ? (t - m[2]) / (m[3] - m[2]) : 1, v = 1 - u;
      c.strokeStyle = colour; c.lineWidth = small ? 1.5 : 2; c.globalAlpha = 0.8;
      c.beginPath(); c.moveTo(a[0], a[1]); c.quadraticCurveTo(mx, my, b[0], b[1]); c.stroke();
      c.globalAlpha = 1;
      const x = v * v * a[0] + 2 * u * v * mx + u * u * b[0], y = v * v * a[1] + 2 * u * v * my + u * u * b[1];
      c.fillStyle = page.paper; c.beginPath(); c.arc(x, y, small ? 4 : 6, 0, 7); c.fill(); c.stroke();
      c.fillStyle = colour; c.beginPath(); c.arc(x, y, small ? 2.5 : 4, 0, 7); c.fill();
      if (!labels) return;
      const text = bytesText(m[4]);
      c.font = '11px system-ui,sans-serif';
      const w = c.measureText(text).width + 8;
      const left = Math.max(0, Math.min(width - w, x - w / 2)), top = Math.max(0, Math.min(height - 16, y + 8));
      c.fillStyle = page.paper; c.globalAlpha = 0.92; c.beginPath(); c.rect(left, top, w, 16); c.fill(); c.globalAlpha = 1;
      c.fillStyle = page.ink; c.textBaseline = 'middle'; c.fillText(text, left + 4, top + 8.5);
    });
  }

  const part = {
    node: make('div', {}, field, raw.messages.length ? count : null),
    size() {
      const box = field.getBoundingClientRect(), scale = window.devicePixelRatio || 1;
      width = box.width; height = box.height;
      canvas.width = Math.round(width * scale); canvas.height = Math.round(height * scale);
      canvas.getContext('2d').setTransform(scale, 0, 0, scale, 0, 0);
      centre = tiles.map(one => { const r = one.tile.getBoundingClientRect(); return [r.left - box.left + r.width / 2, r.top - box.top + r.height / 2]; });
      tiles.forEach(one => { one.shown = undefined; });
      dirty = true;
    },
    time(t) {
      for (let i = 0; i < f.devices; i++) showTile(i, Math.min(t, f.end));
      showMessages(t);
      const list = messagesAt(f, t);
      count.textContent = list.length ? list.length + (list.length === 1 ? ' message' : ' messages') + (f.raw.kind === 'schedule' ? '' : ', ' + bytesText(sum(list.map(m => m[4])))) + ' on the way' : 'no message on the way';
    },
    chosen(it) {
      const device = it && it.film === f ? it.pass ? it.pass[0] : it.device : -1;
      tiles.forEach((one, i) => one.tile.classList.toggle('chosen', i === device));
    },
  };
  return part;
}
