// same.js -- asks the page's program the questions of a file, one plan a line, and writes each answer as `orrery plan --json -` would:
//
//     node same.js ENGINE PLAN.WASM QUESTIONS FOLDER       FOLDER/N.out, N.err and N.status of line N, from 1
'use strict';
const fs = require('fs');
const [engine, program, questions, folder] = process.argv.slice(2);
const asked = require(engine)(new WebAssembly.Module(fs.readFileSync(program)));
fs.readFileSync(questions, 'utf8').trim().split('\n').forEach((line, i) => {
  const answer = asked.ask([...line.trim().split(/ +/), '--json', '-']);
  fs.writeFileSync(`${folder}/${i + 1}.out`, answer.out);
  fs.writeFileSync(`${folder}/${i + 1}.err`, answer.err);
  fs.writeFileSync(`${folder}/${i + 1}.status`, String(answer.status));
});
