// chromium.js -- opens a page in a headless Chromium, waits until something is true of it, and prints what an expression gives:
//
//     node chromium.js URL 'READY' 'EXPRESSION' [WIDTHxHEIGHT [light|dark [PICTURE.png]]]
//
// The exit status is 1 if READY is not true within ORRERY_PATIENCE seconds (120), or if the page has thrown an error.
'use strict';
const { spawn } = require('child_process'), fs = require('fs'), os = require('os'), path = require('path');
const [url, ready, expression, size = '1280x900', colours = 'light', picture] = process.argv.slice(2);
const [width, height] = size.split('x').map(Number), patience = 1000 * Number(process.env.ORRERY_PATIENCE || 120);
const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'orrery-chromium-'));
const browser = spawn('chromium', ['--headless=new', '--no-sandbox', '--disable-gpu', '--no-first-run', '--remote-debugging-pipe', '--user-data-dir=' + profile, 'about:blank'],
  { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });
const waiting = new Map(), errors = [];
let number = 0, rest = '';
browser.stdio[4].on('data', data => {
  const parts = (rest + data).split('\0');
  rest = parts.pop();
  for (const part of parts) {
    const message = JSON.parse(part);
    if (message.method === 'Runtime.exceptionThrown') errors.push(message.params.exceptionDetails.exception.description || message.params.exceptionDetails.text);
    if (waiting.has(message.id)) { waiting.get(message.id)(message); waiting.delete(message.id); }
  }
});
const call = (method, params, sessionId) => new Promise((done, fails) => {
  waiting.set(++number, m => (m.error ? fails(new Error(method + ': ' + m.error.message)) : done(m.result)));
  browser.stdio[3].write(JSON.stringify({ id: number, method, params, sessionId }) + '\0');
});
const pause = ms => new Promise(done => setTimeout(done, ms));

async function main() {
  const { targetId } = await call('Target.createTarget', { url: 'about:blank' });
  const { sessionId: s } = await call('Target.attachToTarget', { targetId, flatten: true });
  await call('Runtime.enable', {}, s);
  await call('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: width < 600 }, s);
  await call('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: colours }] }, s);
  await call('Page.navigate', { url }, s);
  const value = async text => {
    const { result, exceptionDetails } = await call('Runtime.evaluate', { expression: text, returnByValue: true, awaitPromise: true }, s);
    return exceptionDetails ? undefined : result.value;
  };
  const begin = Date.now();
  while (!(await value(ready))) {
    if (Date.now() - begin > patience) throw new Error('not ready: ' + ready + '; the page says: ' + (await value('document.body.innerText.slice(-300)')));
    await pause(50);
  }
  const result = await value(expression);
  console.log(typeof result === 'string' ? result : JSON.stringify(result));
  if (picture) fs.writeFileSync(picture, Buffer.from((await call('Page.captureScreenshot', {}, s)).data, 'base64'));
  if (errors.length) throw new Error('the page has thrown: ' + errors.join('; '));
}
main().then(() => 0, error => { console.error(error.message); return 1; }).then(status => {
  process.exitCode = status;
  browser.on('exit', () => fs.rmSync(profile, { recursive: true, force: true, maxRetries: 5 }));
  browser.kill();
});
