// Names and series: their UIDs and metadata.

import { request, withParameters } from './api.js';
import { button, errorSlot, h, select } from './dom.js';
import { combobox } from './combobox.js';
import { parseSeries } from './metric-text.js';
import { names } from './suggest.js';

const KINDS = [['metrics', 'Metric'], ['tagk', 'Tag key'], ['tagv', 'Tag value'], ['series', 'Series']];
const FIELDS = [['displayName', 'display name'], ['description', 'description'], ['notes', 'notes']];
const SERIES_FIELDS = [...FIELDS, ['units', 'units'], ['dataType', 'data type'], ['retention', 'retention (days)'], ['max', 'max'], ['min', 'min']];

const seriesText = ({ metric, tags }) => `${metric}{${Object.entries(tags).map(([key, value]) => `${key}=${value}`).join(',')}}`;

/** The series of `metric{tag=value}`, at most `limit`. */
export async function lookup(text, limit) {
  const { metric, tags } = parseSeries(text);
  const body = { metric, tags: tags.map(({ key, value }) => ({ key, value })), limit };
  return (await request('/api/search/lookup', { body })).results;
}

/** The UID of a name, from the TSUID of a series that has it. */
async function uidOf(kind, name) {
  const config = await request('/api/config').catch(() => ({}));
  const width = (of) => 2 * Number(config[`tsd.storage.uid.width.${of}`] || 3);
  const search = kind === 'metrics' ? { metric: name } : { tags: [kind === 'tagk' ? { key: name, value: '*' } : { key: '*', value: name }] };
  const [series] = (await request('/api/search/lookup', { body: { ...search, limit: 1 } })).results;
  if (!series) throw new Error(`No series has “${name}”, so its UID is not known here. “tsdb uid” finds it.`);
  if (kind === 'metrics') return series.tsuid.slice(0, width('metric'));
  const place = Object.entries(series.tags).findIndex(([key, value]) => (kind === 'tagk' ? key : value) === name);
  const from = width('metric') + place * (width('tagk') + width('tagv')) + (kind === 'tagk' ? 0 : width('tagk'));
  return series.tsuid.slice(from, from + width(kind));
}

export function uidView() {
  let kind = 'metrics', version = 0;
  const holder = h('span'), result = h('div');
  const error = errorSlot();
  const element = h('div', { class: 'view' }, h('h1', {}, 'Names, UIDs and metadata'),
    h('div', { class: 'line' }, select(KINDS, kind, (value) => { kind = value; drawField(); }, 'Kind'), holder), error.slot, result);

  function drawField() {
    const isSeries = kind === 'series';
    const field = combobox({
      value: '', name: isSeries ? 'Series' : 'Name', placeholder: isSeries ? 'metric{host=web01} or TSUID' : 'name', className: 'wide',
      suggest: (text, signal) => (isSeries ? (text.includes('{') ? [] : names('metrics', text, signal)) : names(kind, text, signal)), commit: open,
    });
    holder.replaceChildren(field.element);
    result.replaceChildren();
    error.show('');
    return field;
  }
  drawField();

  async function attempt(action) {
    error.show('');
    try {
      await action();
    } catch (failure) {
      error.show(failure.message);
    }
  }

  function open(text) {
    const mine = ++version;
    result.replaceChildren();
    return attempt(() => text.trim() && (kind === 'series' ? openSeries(text.trim(), mine) : openName(text, mine)));
  }

  async function openName(text, mine) {
    const type = kind === 'metrics' ? 'metric' : kind;
    const meta = await request(withParameters('/api/uid/uidmeta', { uid: await uidOf(kind, text), type }));
    if (meta.name !== text) throw new Error(`The UID of “${text}” was not found: ${meta.uid} is “${meta.name}”.`);
    if (mine === version) show(meta, FIELDS, '/api/uid/uidmeta', { uid: meta.uid, type });
  }

  async function openSeries(text, mine) {
    const isTsuid = /^[0-9A-Fa-f]{12,}$/.test(text);
    const found = isTsuid ? [{ tsuid: text }] : await lookup(text, 50);
    if (mine !== version) return;
    if (found.length === 0) throw new Error('No series matches.');
    if (found.length > 1) {
      return result.replaceChildren(h('h2', {}, `${found.length === 50 ? 'The first 50' : found.length} series`), ...found.map((one) =>
        h('div', {}, button(seriesText(one), () => attempt(() => openOne(one, ++version)), { class: 'link' }))));
    }
    await openOne(found[0], mine);
  }

  async function openOne({ tsuid, ...one }, mine) {
    const meta = await request(withParameters('/api/uid/tsmeta', { tsuid })).catch((failure) => {
      if (failure.status === 404) return { tsuid };
      throw failure;
    });
    if (mine === version) show(meta, SERIES_FIELDS, '/api/uid/tsmeta', { tsuid }, one.metric && seriesText(one));
  }

  function show(meta, fields, path, key, series) {
    const inputs = fields.map(([name, text]) => [name, text, h(name === 'notes' ? 'textarea' : 'input', { value: String(meta[name] ?? ''), 'aria-label': text, rows: 3 })]);
    const custom = h('textarea', { value: Object.entries(meta.custom ?? {}).map(([name, value]) => `${name}=${value}`).join('\n'), rows: 3, 'aria-label': 'Custom fields' });
    const said = h('span', { role: 'status' });
    const failed = errorSlot();
    const save = async () => {
      const body = { ...key };
      for (const [name, , input] of inputs) {
        if (input.value !== String(meta[name] ?? '')) body[name] = typeof meta[name] === 'number' ? (Number.isNaN(Number(input.value)) ? input.value : Number(input.value)) : input.value;
      }
      const pairs = custom.value.split('\n').filter((line) => line.includes('=')).map((line) => [line.slice(0, line.indexOf('=')).trim(), line.slice(line.indexOf('=') + 1).trim()]);
      if (pairs.length || meta.custom) body.custom = Object.fromEntries(pairs);
      try {
        // Metadata of a series is created by its names, and changed by its TSUID.
        const creates = meta.created === undefined && series;
        if (creates) delete body.tsuid;
        meta = (await request(creates ? withParameters(path, { m: series, create: true }) : path, { body })) ?? meta;
        failed.show('');
        said.textContent = 'Saved.';
      } catch (failure) {
        said.textContent = '';
        failed.show(failure.message);
      }
    };
    result.replaceChildren(h('form', { class: 'form', onsubmit: (event) => { event.preventDefault(); save(); } },
      h('label', {}, key.tsuid ? 'TSUID' : 'UID'), h('code', {}, meta.uid ?? meta.tsuid),
      h('label', {}, 'name'), h('span', {}, meta.name ?? series ?? [meta.metric?.name, ...(meta.tags ?? []).map((tag) => tag.name)].filter(Boolean).join(' ')),
      h('label', {}, 'created'), h('span', {}, meta.created ? new Date(meta.created * 1000).toISOString().slice(0, 19) + 'Z' : 'not known'),
      ...inputs.flatMap(([, text, input]) => [h('label', {}, text), input]),
      h('label', {}, 'custom, a name=value on each line'), custom,
      h('div', { class: 'wide line' }, h('button', { type: 'submit', class: 'primary' }, 'Save'), said), h('div', { class: 'wide' }, failed.slot)));
  }

  return { element, show() {}, refresh() { error.show(''); } };
}
