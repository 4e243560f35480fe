import { h } from './dom.js';
export function serverView() { return { element: h('p', {}, '…'), show() {}, refresh() {} }; }
