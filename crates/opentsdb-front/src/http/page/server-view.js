// The server: health, ingest rate, series, memory, queries. All numbers are those of `/api/stats` and below.

import { request } from './api.js';
import { lineStyle } from './colors.js';
import { errorSlot, h, table } from './dom.js';
import { bytes, shortNumber } from './ticks.js';
import { LOCAL_ZONE, showTime } from './time.js';

const EVERY = 3000, KEPT = 120;

/** Values by metric, and by metric and tag: `oxtsdb.queries running`. */
function byName(statistics) {
  const values = new Map();
  for (const { metric, value, tags } of statistics) {
    const tag = Object.entries(tags).find(([key]) => key !== 'host');
    values.set(tag ? `${metric} ${tag[1]}` : metric, Number(value));
  }
  return values;
}

const span = (ms) => (ms < 10_000 ? `${(ms / 1000).toFixed(2)} s` : ms < 3600e3 ? `${Math.round(ms / 1000)} s` : ms < 2 * 86400e3 ? `${(ms / 3600e3).toFixed(1)} h` : `${Math.floor(ms / 86400e3)} d`);

/** @param {{isDark: () => boolean}} options */
export function serverView({ isDark }) {
  let timer = 0, last = null, visible = false;
  const rates = [];
  const line = h('canvas', { 'aria-hidden': 'true' });
  const tiles = h('div', { class: 'tiles' }), running = h('div'), ended = h('div'), raw = h('div');
  const error = errorSlot();
  const title = h('h1', {}, 'Server');
  const element = h('div', { class: 'view' }, title, error.slot, tiles,
    h('h2', {}, 'Running queries'), running, h('h2', {}, 'Slowest of the last queries'), ended,
    h('p', { class: 'hint' }, 'A query of this page ends with its Cancel button. “tsdb queries --end NUMBER” cancels any query.'),
    h('details', {}, h('summary', {}, 'All statistics'), raw));

  const tile = (what, value, note = '', name = '') => h('div', { class: 'tile' }, h('div', { class: 'what' }, what), h('div', { class: `value ${name}` }, value), h('small', {}, note));

  function drawRates() {
    const ratio = devicePixelRatio || 1;
    line.width = line.clientWidth * ratio;
    line.height = line.clientHeight * ratio;
    const context = line.getContext('2d');
    const most = Math.max(1, ...rates);
    context.strokeStyle = lineStyle(0, isDark()).color;
    context.lineWidth = 1.5 * ratio;
    context.beginPath();
    rates.forEach((rate, i) => context.lineTo((i / (KEPT - 1)) * line.width, line.height - 2 - (rate / most) * (line.height - 4)));
    context.stroke();
  }

  function queriesTable(queries, caption) {
    if (!queries.length) return h('p', { class: 'hint' }, 'None.');
    return table(['id', 'duration', 'query', 'range', 'points', 'memory', 'began'], queries.map((query) => [
      query.id, span(query.stats.totalTime),
      h('div', {}, h('span', { class: 'code' }, query.query.queries.map(({ m }) => m).join('\n')),
        query.exception && query.exception !== 'null' ? h('div', { class: 'bad' }, query.exception) : ''),
      query.query.end > 0 ? span(query.query.end - query.query.start) : '', shortNumber(query.stats.dpsPreFilter ?? 0), bytes(query.stats.memoryBytes ?? 0), showTime(query.queryStartTimestamp, LOCAL_ZONE)]), caption);
  }

  function draw(statistics, queries, process, version) {
    const values = byName(statistics);
    const of = (name) => values.get(name) ?? 0;
    const added = of('tsd.datapoints.added all'), now = performance.now();
    if (last && added >= last.added) rates.push(((added - last.added) * 1000) / (now - last.now));
    if (rates.length > KEPT) rates.shift();
    last = { added, now };
    title.textContent = `Server ${version.host ?? ''}, ${version.implementation ?? 'OpenTSDB'} ${version.implementation_version ?? version.version}`;
    const sum = (name) => ['grpc', 'http', 'telnet'].reduce((all, type) => all + of(`${name} ${type}`), 0);
    const failed = sum('oxtsdb.points.failed'), rejected = sum('oxtsdb.points.rejected'), damaged = of('oxtsdb.store.damaged_ranges');
    const problems = [damaged && `${damaged} damaged ranges`, failed && `${failed} points failed`, of('oxtsdb.points.failed_merges') && `${of('oxtsdb.points.failed_merges')} merges failed`].filter(Boolean);
    const ingest = h('div', { class: 'tile wide' }, h('div', { class: 'what' }, 'Points stored per second'), h('div', { class: 'value' }, rates.length ? shortNumber(rates.at(-1), 3) : '…'), line);
    const pool = (name) => {
      const [used, limit] = [of(`oxtsdb.memory.used_bytes ${name}`), of(`oxtsdb.memory.limit_bytes ${name}`)];
      const item = tile(`Memory for ${name === 'query' ? 'queries' : 'points'}`, bytes(used), `of ${bytes(limit)}, peak ${bytes(of(`oxtsdb.memory.peak_bytes ${name}`))}`);
      item.append(h('meter', { max: limit || 1, value: used, 'aria-label': `Memory used of ${name}` }));
      return item;
    };
    tiles.replaceChildren(
      tile('Health', problems.length ? 'look here' : 'good', problems.join(', ') || `up ${span(process.runtime.uptime)}, load ${process.os.systemLoadAverage}`, problems.length ? 'bad' : 'good'),
      ingest, tile('Series', shortNumber(of('oxtsdb.points.series')), `${shortNumber(of('tsd.uid.cache-size metrics'))} metrics in the cache`),
      tile('Points received', shortNumber(added), `${shortNumber(rejected)} rejected since the start`),
      tile('Stored', bytes(of('oxtsdb.points.bytes') + of('oxtsdb.points.journal_bytes')), `${of('oxtsdb.points.parts')} parts, journal ${bytes(of('oxtsdb.points.journal_bytes'))}`),
      tile('Process', bytes(process.memory.heapMemoryUsage.used), 'resident memory'), pool('ingest'), pool('query'),
      tile('Queries', `${of('oxtsdb.queries running')}`, `${of('oxtsdb.queries queued')} wait, ${shortNumber(of('tsd.http.query.success'))} succeeded, ${shortNumber(of('tsd.http.query.exceptions'))} failed`),
      tile('Connections', String(of('tsd.connectionmgr.connections open')), `${shortNumber(of('tsd.rpc.received http'))} HTTP requests, ${shortNumber(of('tsd.rpc.received telnet'))} telnet lines`));
    drawRates();
    const byTime = (a, b) => b.stats.totalTime - a.stats.totalTime;
    running.replaceChildren(queriesTable([...queries.running].sort(byTime), 'Running queries'));
    ended.replaceChildren(queriesTable([...queries.completed].sort(byTime).slice(0, 15), 'Slowest of the last queries'));
    if (raw.parentElement.open) raw.replaceChildren(table(['name', 'value'], [...values], 'All statistics'));
  }

  async function refresh() {
    clearTimeout(timer);
    try {
      const paths = ['/api/stats', '/api/stats/query', '/api/stats/jvm', '/api/version'];
      const [statistics, queries, process, version] = await Promise.all(paths.map((path) => request(path)));
      error.show('');
      if (visible) draw(statistics, queries, process, version);
    } catch (failure) {
      error.show(failure.message);
      if (failure.status === 401 || failure.status === 403) return;
    }
    if (visible) timer = setTimeout(refresh, document.hidden ? EVERY * 5 : EVERY);
  }

  return { element, refresh, redraw: drawRates, show: () => { visible = true; refresh(); }, hide: () => { visible = false; clearTimeout(timer); last = null; } };
}
