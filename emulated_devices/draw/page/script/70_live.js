// 70_live.js -- the page of a run that goes on: asks the run for what is new, each second.  60_page.js starts live().
function live() {
  const root = document.getElementById('page'), word = make('p', { class: 'live', role: 'status' }, 'waiting for the first step');
  let film = 0, failed = 0;
  root.before(word);
  root.append(make('h1', {}, 'A run that goes on'));
  const get = what => fetch(what, { cache: 'no-store' }).then(r => { if (!r.ok) throw new Error(r.status); return r.json(); });

  function take(state) {
    failed = 0;
    const steps = state.losses.length, last = state.losses[steps - 1];
    word.textContent = (state.ends ? 'the run has ended: ' : 'live: ') + steps + (steps === 1 ? ' step' : ' steps') + (steps && last !== null ? ', loss ' + last.toPrecision(4) : '');
    if (state.film === film) {
      if (page.films.length && steps) { page.films[0].raw.losses = state.losses; drawAll(); }
      return null;
    }
    film = state.film;
    return get('data').then(data => { if (state.losses.length > data.films[0].losses.length) data.films[0].losses = state.losses; orrery.show(data); });
  }

  function ask() {
    get('state').then(take).catch(() => { if (++failed === 3) word.textContent = 'the run has ended; the page shows what it had'; })
      .finally(() => { if (failed < 3) setTimeout(ask, 1000); });
  }
  ask();
}

start();
