// 10_words.js -- the fields of a plan and the words of a command that say the same.  20_answer.js and 30_ask.js call these functions.

const registered = new Map();           // a part of `orrery list` -> its entries
JSON.parse(document.getElementById('names').textContent).forEach(list =>
  list.tables.entries.forEach(e => { if (!registered.has(e.part)) registered.set(e.part, []); registered.get(e.part).push(e); }));

const powers = (first, last) => { const list = []; for (let n = first; n <= last; n *= 2) list.push(n); return list; };
const listed = part => registered.get(part).filter(e => /^[a-z0-9]/.test(e.name));

// A field: its flag, what it is, its value, the one that needs no words (`usual`, which tests/browser/ holds against the
// program), and either steps of a slider or names to choose from.  '' is the program's own choice.
const FIELDS = [
  { flag: '--model', text: 'model', names: listed('models'), value: 'llama3-70b' },
  { flag: '--cluster', text: 'cluster', names: listed('clusters'), value: 'h100-infiniband' },
  { flag: '--dp', text: 'dp: copies of the model', steps: powers(1, 4096), value: 8, usual: 1 },
  { flag: '--tp', text: 'tp: parts of each layer', steps: powers(1, 128), value: 8, usual: 1 },
  { flag: '--pp', text: 'pp: pipeline stages', steps: powers(1, 128), value: 8, usual: 1 },
  { flag: '--cp', text: 'cp: parts of each sequence', steps: powers(1, 128), value: 1, usual: 1 },
  { flag: '--ep', text: 'ep: groups of experts', steps: powers(1, 256), value: 1, usual: 1 },
  { flag: '--batch', text: 'batch: sequences a step', steps: ['', ...powers(1, 16384)], value: 128, usual: '' },
  { flag: '--seq', text: 'sequence: tokens', steps: ['', ...powers(128, 1 << 20)], value: 4096, usual: '' },
  { flag: '--micro', text: 'microbatches a copy', steps: ['', ...powers(1, 1024)], value: '', usual: '' },
  { flag: '--data-parallel', text: 'data parallelism (ZeRO)', names: listed('data'), value: 'zero1', usual: 'ddp' },
  { flag: '--schedule', text: 'pipeline schedule', names: listed('schedules'), value: '1f1b', usual: '1f1b' },
  { flag: '--chunks', text: 'chunks: stages a device', steps: powers(1, 32), value: 1, usual: 1 },
  { flag: '--tensor', text: 'tensor parallelism', names: listed('tensor'), value: '1d', usual: '1d' },
  { flag: '--recompute', text: 'recompute', names: ['none', 'selective', 'selective++', 'full'].map(name => ({ name })), value: 'full', usual: 'none' },
  { flag: '--dtype', text: 'number format', names: listed('dtypes'), value: 'bf16' },
];
const fieldOf = flag => FIELDS.find(f => f.flag === flag);
let otherWords = '';                    // options that have no field, as typed

// The words behind `orrery plan` that the fields say.  Model, cluster and number format are always said.
function wordsOfFields() {
  const words = [];
  for (const f of FIELDS)
    if (String(f.value) !== String(f.usual)) words.push(f.flag, String(f.value));
  return words.concat(otherWords.split(/\s+/).filter(w => w));
}

// Set the fields from words: those that no word names get what needs no words, or keep what they have.  --zero N is a name of --data-parallel.
function fieldsOfWords(words) {
  const rest = [];
  for (const f of FIELDS) if (f.usual !== undefined) f.value = f.usual;
  for (let i = 0; i < words.length; i++) {
    const cut = words[i].indexOf('='), flag = cut > 0 ? words[i].slice(0, cut) : words[i];
    const value = cut > 0 ? words[i].slice(cut + 1) : words[i + 1], field = fieldOf(flag === '--zero' ? '--data-parallel' : flag);
    if (!field || value === undefined) { rest.push(words[i]); continue; }
    field.value = flag === '--zero' ? ['ddp', 'zero1', 'zero2', 'zero3'][value] || value : value;
    if (cut <= 0) i++;
  }
  otherWords = rest.join(' ');
}

// The address keeps the words behind '#', so that a plan can be sent and kept.
const wordsOfAddress = () => {
  const found = /[#&]plan=([^&]*)/.exec(location.hash);
  return found ? decodeURIComponent(found[1].replace(/\+/g, ' ')).split(' ').filter(w => w) : null;
};
const addressOfWords = words => '#plan=' + words.map(w => encodeURIComponent(w)).join('+');
const quoted = word => (/^[A-Za-z0-9_.,:=/+-]+$/.test(word) ? word : "'" + word.replace(/'/g, "'\\''") + "'");
const commandOf = words => ['orrery', 'plan', ...words.map(quoted)].join(' ');

// A plan is no run that goes on: 60_page.js asks a server for one where a page has no films.
function live() { }
