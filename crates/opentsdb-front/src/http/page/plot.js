// The plot: lines on a canvas, and on a second canvas above it what follows the pointer.
//
// Dragging selects a range to zoom into, a click moves the cursor, keys do both. The plot changes no range by itself; it
// calls `onzoom` with the new one.

import { h } from './dom.js';
import { plotColors } from './colors.js';
import { lowerBound, nearest, reduce, summary } from './reduce.js';
import { gnuplotFormat, logTicks, shortNumber, timeTicks, valueTicks } from './ticks.js';
import { showTime } from './time.js';

const TOP = 14, BOTTOM = 24, NEAR = 12, LISTED = 12;

/**
 * @typedef {object} Series
 * @property {string} name @property {Float64Array} times @property {Float64Array} values
 * @property {boolean} right @property {boolean} hidden @property {{color: string, dash: number[]}} style
 */
/** @typedef {{min: number|null, max: number|null, log: boolean, label: string, format: string}} Axis */
/** @typedef {{at: number, end: number, text: string}} Note */

export class Plot {
  /** @type {Series[]} */ series = [];
  /** @type {Note[]} */ notes = [];
  from = 0;
  to = 1;
  zone = 'UTC';
  dark = false;
  marks = 'lines';
  /** @type {[Axis, Axis]} */
  axes = [{ min: null, max: null, log: false, label: '', format: '' }, { min: null, max: null, log: false, label: '', format: '' }];
  #cursor = NaN; // The time under the pointer, or that keys have moved to.
  #pointerY = NaN;
  #drag = null;
  #frame = 0;
  #highlighted = null;

  /** @param {{onzoom: (from: number, to: number) => void, onback: () => void, onout: () => void}} callbacks */
  constructor({ onzoom, onback, onout }) {
    this.onzoom = onzoom;
    this.onback = onback;
    this.onout = onout;
    this.base = h('canvas', { 'aria-hidden': 'true' });
    this.overlay = h('canvas', { tabIndex: 0, role: 'application', 'aria-roledescription': 'plot', 'aria-label': 'Plot' });
    this.tip = h('div', { class: 'tip', hidden: true });
    this.spoken = h('div', { class: 'hidden', 'aria-live': 'polite' });
    this.element = h('div', { class: 'plot' }, this.base, this.overlay, this.tip, this.spoken);
    new ResizeObserver(() => this.draw()).observe(this.element);
    this.#listen();
  }

  /** Draws at the next frame. */
  draw() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#drawBase();
      this.#drawOverlay();
    });
  }

  /** Draws one series above the others, or none. @param {Series | null} series */
  highlight(series) {
    if (this.#highlighted === series) return;
    this.#highlighted = series;
    this.#drawOverlay();
  }

  #x(time) { return this.left + ((time - this.from) / (this.to - this.from)) * this.width; }
  #time(x) { return this.from + ((x - this.left) / this.width) * (this.to - this.from); }

  /** The scale of an axis over the visible series; null if it has none. */
  #scale(isRight) {
    const axis = this.axes[isRight ? 1 : 0];
    let low = Infinity, high = -Infinity, leastPositive = Infinity;
    for (const series of this.series) {
      if (series.hidden || series.right !== isRight) continue;
      const of = summary(series.times, series.values, this.from, this.to);
      if (of.count === 0) continue;
      low = Math.min(low, of.min);
      high = Math.max(high, of.max);
      if (axis.log) {
        if (of.min > 0) leastPositive = Math.min(leastPositive, of.min);
        else for (const value of series.values) if (value > 0 && value < leastPositive) leastPositive = value;
      }
    }
    if (low > high) return null;
    let min = axis.min ?? low, max = axis.max ?? high;
    if (axis.log) {
      if (!(min > 0)) min = Number.isFinite(leastPositive) ? leastPositive : 0.1;
      if (!(max > min)) max = min * 10;
      const of = (value) => (value > 0 ? Math.log10(value) : -Infinity);
      const pad = (Math.log10(max) - Math.log10(min)) * 0.04;
      const bottom = axis.min > 0 ? Math.log10(min) : Math.log10(min) - pad;
      const top = axis.max === null ? Math.log10(max) + pad : Math.log10(max);
      return { y: (value) => this.bottom - ((Math.max(of(value), bottom - 9) - bottom) / (top - bottom)) * this.height, ticks: logTicks(10 ** bottom, 10 ** top), axis };
    }
    if (!(max > min)) {
      const pad = Math.abs(min) * 0.1 || 1;
      if (axis.max === null) max = min + pad;
      if (axis.min === null) min -= pad;
      if (!(max > min)) max = min + pad;
    } else {
      // Zero is in sight if it is near.
      if (axis.min === null) min = min > 0 && min < (max - min) * 0.7 ? 0 : min === 0 ? 0 : min - (max - min) * 0.05;
      if (axis.max === null) max += (max - min) * 0.05;
    }
    return { y: (value) => this.bottom - ((value - min) / (max - min)) * this.height, ticks: valueTicks(min, max, Math.max(2, this.height / 44)), axis };
  }

  #prepare(canvas) {
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [this.element.clientWidth, this.element.clientHeight];
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const context = canvas.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = '11px system-ui, sans-serif';
    return context;
  }

  #drawBase() {
    const context = this.#prepare(this.base);
    const colors = plotColors(this.dark);
    const [width, height] = [this.element.clientWidth, this.element.clientHeight];
    context.fillStyle = colors.background;
    context.fillRect(0, 0, width, height);
    this.bottom = height - BOTTOM;
    this.height = this.bottom - TOP;
    const scales = (this.scales = [this.#scale(false), this.#scale(true)]);
    const texts = scales.map((scale) => scale?.ticks.map((value) => (gnuplotFormat(scale.axis.format) ?? shortNumber)(value)));
    const room = (place) => {
      const widest = Math.max(0, ...(texts[place] ?? []).map((text) => context.measureText(text).width));
      return scales[place] ? Math.ceil(widest) + 14 + (this.axes[place].label ? 16 : 0) : 14;
    };
    this.left = Math.max(room(0), 34);
    this.width = Math.max(10, width - this.left - room(1));
    this.#drawGrid(context, colors, scales, texts);
    context.save();
    context.beginPath();
    context.rect(this.left, TOP - 4, this.width, this.height + 5);
    context.clip();
    this.#drawNotes(context, colors);
    const visible = this.series.filter((series) => !series.hidden);
    context.globalAlpha = visible.length > 100 ? 0.55 : 1;
    for (let i = visible.length; i--;) this.#drawLine(context, visible[i], visible.length > 40 ? 1 : 1.5);
    context.restore();
  }

  #drawGrid(context, colors, scales, texts) {
    const right = this.left + this.width;
    context.lineWidth = 1;
    context.textBaseline = 'middle';
    scales.forEach((scale, place) => {
      if (!scale) return;
      context.textAlign = place ? 'left' : 'right';
      scale.ticks.forEach((value, index) => {
        const y = Math.round(scale.y(value)) + 0.5;
        if (y < TOP - 1 || y > this.bottom + 1) return;
        if (!place || !scales[0]) {
          context.strokeStyle = colors.grid;
          context.beginPath();
          context.moveTo(this.left, y);
          context.lineTo(right, y);
          context.stroke();
        }
        context.fillStyle = colors.text;
        context.fillText(texts[place][index], place ? right + 7 : this.left - 7, y);
      });
      if (this.axes[place].label) {
        context.save();
        context.translate(place ? right + this.element.clientWidth - right - 8 : 8, TOP + this.height / 2);
        context.rotate(-Math.PI / 2);
        context.textAlign = 'center';
        context.fillText(this.axes[place].label, 0, 0);
        context.restore();
      }
    });
    context.textBaseline = 'top';
    context.textAlign = 'center';
    for (const { at, text, major } of timeTicks(this.from, this.to, this.width / 78, this.zone)) {
      const x = Math.round(this.#x(at)) + 0.5;
      context.strokeStyle = major ? colors.axis : colors.grid;
      context.beginPath();
      context.moveTo(x, TOP);
      context.lineTo(x, this.bottom);
      context.stroke();
      context.fillStyle = colors.text;
      const half = context.measureText(text).width / 2;
      context.fillText(text, Math.min(Math.max(x, half + 2), this.element.clientWidth - half - 2), this.bottom + 7);
    }
    context.strokeStyle = colors.axis;
    context.beginPath();
    context.moveTo(this.left, this.bottom + 0.5);
    context.lineTo(right, this.bottom + 0.5);
    context.stroke();
  }

  #drawNotes(context, colors) {
    context.fillStyle = context.strokeStyle = colors.note;
    for (const { at, end } of this.notes) {
      const x = Math.round(this.#x(at)) + 0.5;
      if (end > at) {
        context.globalAlpha = 0.12;
        context.fillRect(x, TOP, this.#x(end) - x, this.height);
        context.globalAlpha = 1;
      }
      context.setLineDash([4, 3]);
      context.beginPath();
      context.moveTo(x, TOP);
      context.lineTo(x, this.bottom);
      context.stroke();
      context.setLineDash([]);
      context.beginPath();
      context.moveTo(x, TOP + 6);
      context.lineTo(x - 5, TOP - 3);
      context.lineTo(x + 5, TOP - 3);
      context.fill();
    }
  }

  #drawLine(context, series, lineWidth) {
    const scale = this.scales[series.right ? 1 : 0];
    if (!scale) return;
    const { times, values } = series;
    const indices = reduce(times, values, this.from, this.to, Math.max(50, Math.ceil(this.width)));
    const onlyPoints = /points$|circles|dots/.test(this.marks) && this.marks !== 'linespoint';
    context.strokeStyle = context.fillStyle = series.style.color;
    context.lineWidth = lineWidth;
    context.lineJoin = 'bevel';
    context.setLineDash(series.style.dash);
    context.beginPath();
    const dots = [];
    const dotted = onlyPoints || indices.length < this.width / 12;
    let isOpen = false;
    for (let k = 0; k < indices.length; k++) {
      const index = indices[k];
      const value = values[index];
      if (Number.isNaN(value)) {
        isOpen = false;
        continue;
      }
      const x = this.#x(times[index]), y = Math.min(1e5, Math.max(-1e5, scale.y(value)));
      if (isOpen && !onlyPoints) context.lineTo(x, y);
      else context.moveTo(x, y);
      // A point between two gaps has no line.
      const isAlone = !isOpen && (k + 1 === indices.length || Number.isNaN(values[indices[k + 1]]));
      if (dotted || isAlone) dots.push(x, y);
      isOpen = true;
    }
    context.stroke();
    context.setLineDash([]);
    if (dots.length) {
      context.beginPath();
      const radius = this.marks === 'dots' ? 1 : lineWidth + 0.7;
      for (let i = 0; i < dots.length; i += 2) {
        context.moveTo(dots[i] + radius, dots[i + 1]);
        context.arc(dots[i], dots[i + 1], radius, 0, 7);
      }
      context.fill();
    }
  }

  #drawOverlay() {
    if (!this.scales) return;
    const context = this.#prepare(this.overlay);
    const colors = plotColors(this.dark);
    if (this.#highlighted && !this.#highlighted.hidden) {
      context.save();
      context.beginPath();
      context.rect(this.left, TOP - 4, this.width, this.height + 5);
      context.clip();
      this.#drawLine(context, this.#highlighted, 3.5);
      context.restore();
    }
    if (this.#drag && Math.abs(this.#drag.x - this.#drag.start) > 2) {
      context.fillStyle = colors.select;
      context.fillRect(this.#drag.start, TOP, this.#drag.x - this.#drag.start, this.height);
      context.strokeStyle = colors.cursor;
      context.lineWidth = 1;
      context.strokeRect(this.#drag.start + 0.5, TOP + 0.5, this.#drag.x - this.#drag.start, this.height);
    }
    const isShown = this.#cursor >= this.from && this.#cursor <= this.to;
    this.tip.hidden = !isShown;
    if (!isShown) return;
    const x = Math.round(this.#x(this.#cursor)) + 0.5;
    context.strokeStyle = colors.cursor;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x, TOP);
    context.lineTo(x, this.bottom);
    context.stroke();
    this.#showValues(context, x);
  }

  /** The values at the cursor: those near the pointer first, at most `LISTED`. */
  #showValues(context, x) {
    const found = [];
    const most = (this.to - this.from) * 0.08;
    for (const series of this.series) {
      if (series.hidden) continue;
      const index = nearest(series.times, this.#cursor);
      if (index < 0 || Math.abs(series.times[index] - this.#cursor) > most || Number.isNaN(series.values[index])) continue;
      const y = this.scales[series.right ? 1 : 0]?.y(series.values[index]);
      if (y !== undefined) found.push({ series, time: series.times[index], value: series.values[index], y });
    }
    if (!Number.isNaN(this.#pointerY)) found.sort((a, b) => Math.abs(a.y - this.#pointerY) - Math.abs(b.y - this.#pointerY));
    const listed = found.slice(0, LISTED);
    const closest = listed[0] && Math.abs(listed[0].y - this.#pointerY) < 30 ? listed[0] : null;
    listed.sort((a, b) => b.value - a.value);
    for (const { series, time, y } of listed) {
      context.fillStyle = series.style.color;
      context.beginPath();
      context.arc(this.#x(time), y, 3.5, 0, 7);
      context.fill();
    }
    const rows = listed.map(({ series, value }) => {
      const swatch = h('i', { class: 'swatch' });
      swatch.style.background = series.style.color;
      return h('div', { class: series === closest?.series ? 'row near' : 'row' }, swatch,
        h('span', { class: 'name' }, series.name), h('span', { class: 'number' }, shortNumber(value, 6)));
    });
    const notes = this.notes.filter(({ at, end }) => Math.abs(this.#x(at) - x) < NEAR || (at <= this.#cursor && this.#cursor <= end));
    this.tip.replaceChildren(
      h('div', { class: 'when' }, showTime(closest?.time ?? listed[0]?.time ?? this.#cursor, this.zone)), ...rows,
      ...(found.length > LISTED ? [h('div', { class: 'more' }, `and ${found.length - LISTED} more`)] : []),
      ...notes.slice(0, 5).map((note) => h('div', { class: 'note' }, '▾ ' + note.text)));
    const width = this.tip.offsetWidth;
    const isLeft = x + width + 20 > this.element.clientWidth;
    this.tip.style.left = `${Math.max(4, isLeft ? x - width - 12 : x + 12)}px`;
    this.tip.style.top = `${TOP + 4}px`;
  }

  #listen() {
    const canvas = this.overlay;
    const at = (event) => {
      const box = canvas.getBoundingClientRect();
      return [Math.min(Math.max(event.clientX - box.left, this.left), this.left + this.width), event.clientY - box.top];
    };
    canvas.addEventListener('pointerdown', (event) => {
      if (event.button !== 0 || !this.scales) return;
      canvas.setPointerCapture(event.pointerId);
      const [x] = at(event);
      this.#drag = { start: x, x };
    });
    canvas.addEventListener('pointermove', (event) => {
      if (!this.scales) return;
      const [x, y] = at(event);
      if (this.#drag) this.#drag.x = x;
      this.#cursor = this.#time(x);
      this.#pointerY = y;
      this.#drawOverlay();
    });
    canvas.addEventListener('pointerup', () => {
      const drag = this.#drag;
      this.#drag = null;
      if (drag && Math.abs(drag.x - drag.start) > 5) {
        const [low, high] = [Math.min(drag.start, drag.x), Math.max(drag.start, drag.x)];
        this.#cursor = NaN;
        this.#zoom(this.#time(low), this.#time(high));
      }
      this.#drawOverlay();
    });
    const leave = () => {
      if (this.#drag) return;
      this.#cursor = this.#pointerY = NaN;
      this.#drawOverlay();
    };
    canvas.addEventListener('pointerleave', leave);
    canvas.addEventListener('pointercancel', () => { this.#drag = null; leave(); });
    canvas.addEventListener('blur', leave);
    canvas.addEventListener('dblclick', () => this.onout());
    canvas.addEventListener('keydown', (event) => this.#key(event));
  }

  #zoom(from, to) {
    if (to - from >= 1) this.onzoom(Math.round(from), Math.round(to));
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const span = this.to - this.from;
    const middle = Number.isNaN(this.#cursor) ? this.from + span / 2 : this.#cursor;
    const forward = event.key === 'ArrowRight' ? 1 : -1;
    switch (event.key) {
      case 'ArrowLeft': case 'ArrowRight':
        if (event.shiftKey) this.#zoom(this.from + forward * span / 4, this.to + forward * span / 4);
        else this.#step(forward, middle);
        break;
      case 'Home': case 'End': this.#speak(event.key === 'Home' ? this.from : this.to); break;
      case '+': case '=': this.#zoom(middle - span / 4, middle + span / 4); break;
      case '-': case '_': this.onout(); break;
      case 'Backspace': this.onback(); break;
      case 'Escape': this.#cursor = NaN; this.#drag = null; this.#drawOverlay(); break;
      default: return;
    }
    event.preventDefault();
  }

  /** Moves the cursor to the next point of any series, at least a pixel away. */
  #step(forward, from) {
    const pixel = (this.to - this.from) / this.width;
    let found = forward > 0 ? this.to : this.from;
    for (const { times, hidden } of this.series) {
      if (hidden) continue;
      const index = forward > 0 ? lowerBound(times, from + pixel) : lowerBound(times, from - pixel) - 1;
      const time = times[index];
      if (time !== undefined && (forward > 0 ? time < found : time > found)) found = time;
    }
    this.#speak(found);
  }

  #speak(time) {
    this.#cursor = Math.min(Math.max(time, this.from), this.to);
    this.#pointerY = NaN;
    this.#drawOverlay();
    this.spoken.textContent = [...this.tip.children].map((row) => row.textContent).join(', ');
  }

  /** The plot with its title and names of its series as a PNG. */
  toPng(title) {
    const ratio = window.devicePixelRatio || 1;
    const colors = plotColors(this.dark);
    const visible = this.series.filter((series) => !series.hidden).slice(0, 40);
    const [head, line] = [title ? 26 : 6, 17];
    const canvas = document.createElement('canvas');
    canvas.width = this.base.width;
    canvas.height = this.base.height + (head + visible.length * line + 8) * ratio;
    const context = canvas.getContext('2d');
    context.fillStyle = colors.background;
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(this.base, 0, head * ratio);
    context.scale(ratio, ratio);
    context.fillStyle = colors.text;
    context.font = 'bold 13px system-ui, sans-serif';
    context.fillText(title, 10, 18);
    context.font = '11px system-ui, sans-serif';
    visible.forEach((series, index) => {
      const y = head + this.base.height / ratio + index * line + 8;
      context.strokeStyle = series.style.color;
      context.lineWidth = 3;
      context.setLineDash(series.style.dash);
      context.beginPath();
      context.moveTo(12, y);
      context.lineTo(34, y);
      context.stroke();
      context.fillText(series.name, 40, y + 4);
    });
    return new Promise((resolve) => canvas.toBlob(resolve, 'image/png'));
  }
}
