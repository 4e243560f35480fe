// Colours and dashes of series.
//
// The first seven are Okabe and Ito's, which people with any kind of colour blindness tell apart, in shades that have
// enough contrast with the background. After them colours repeat with dashes, and beyond 28 series in new hues.

const LIGHT = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#b87f00', '#3a9bd9', '#000000'];
const DARK = ['#56b4e9', '#e69f00', '#2fc597', '#e08fbd', '#f0e442', '#f07838', '#ffffff'];
const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3]];

/** Colour and dash of a series. @param {number} index @param {boolean} dark */
export function lineStyle(index, dark) {
  const colors = dark ? DARK : LIGHT;
  if (index < colors.length * DASHES.length) {
    return { color: colors[index % colors.length], dash: DASHES[Math.floor(index / colors.length)] };
  }
  const hue = (index * 137.508) % 360;
  return { color: `hsl(${hue.toFixed(0)} 65% ${dark ? 62 : 42}%)`, dash: [] };
}

/** Colours of the parts of a plot that are no series. @param {boolean} dark */
export const plotColors = (dark) => dark
  ? { background: '#14181d', text: '#aab4bf', grid: '#262d35', axis: '#46515d', note: '#e69f00', select: 'rgba(86,180,233,.2)', cursor: '#8a96a3' }
  : { background: '#ffffff', text: '#55606b', grid: '#e8ebee', axis: '#b4bcc5', note: '#b45f00', select: 'rgba(0,114,178,.14)', cursor: '#7a8590' };
