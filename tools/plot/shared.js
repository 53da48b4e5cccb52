'use strict';
// What the pages have in common: their data, which stand in #data, colours, and how figures read.
const shared = (() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  // Okabe and Ito's colours, which most eyes tell apart; then the same again.
  const palette = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#8c6bb1', '#7f7f7f'];
  const element = (name, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };
  const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const number = value => {
    if (value === null || value === undefined || Number.isNaN(value)) return '–';
    if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString('en');  // a count
    if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e7)) return value.toExponential(2);
    return value.toLocaleString('en', {maximumSignificantDigits: Math.abs(value) >= 1000 ? 6 : 4});
  };
  // Those of the page have changed: a canvas is drawn anew.
  const onColors = redraw => matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  return {data, palette, element, style, number, onColors};
})();
