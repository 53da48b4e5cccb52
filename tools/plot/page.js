'use strict';
// Draws what `rubato plot` has put into #data: {runs: [{name, mode, kinds: {train: {step: [...], ...}, test: ...},
// seams, switches}], figures: [{name, title, unit, isAxis}]}, in the order in which they are shown.
// A null is a figure that was not finite: a gap in the curve. Seams are the lines of training before which the run went
// back to a checkpoint. A switch is a line of training, the first in another mode, and that mode.
(() => {
  const {palette, element, style, number, onColors} = shared;
  const {runs, figures} = shared.data;
  // A figure may be named as something that every object has, such as `constructor`.
  for (const run of runs) for (const columns of Object.values(run.kinds)) Object.setPrototypeOf(columns, null);
  // When all colours are used, the next runs have them in another line, which a swatch's border draws too.
  const lines = [['solid', []], ['dashed', [9, 5]], ['dotted', [2, 3]]];
  const lineOf = index => lines[Math.floor(index / palette.length) % lines.length];
  const pointStyles = {test: 'circle', eval: 'triangle'};
  // A step is not the same in all modes; a sample is.
  let axis = new Set(runs.map(run => run.mode)).size > 1 ? 'samples' : 'step';
  let smoothing = 0;
  const hidden = runs.map(() => false);
  const charts = [];

  const inUnit = (figure, value) => figure.unit === 'share' ? number(100 * value) + ' %' : number(value);
  const four = value => value === null ? 'not finite'
      : value === undefined || (value !== 0 && Math.abs(value) < 1e-3) ? number(value) : value.toFixed(4);
  const clock = seconds => {
    if (seconds < 60) return number(Math.round(10 * seconds) / 10) + ' s';
    const whole = Math.round(seconds);
    const two = part => String(part).padStart(2, '0');
    const minutes = Math.floor(whole / 60) % 60;
    return whole < 3600 ? minutes + ':' + two(whole % 60)
                        : Math.floor(whole / 3600) + ':' + two(minutes) + ':' + two(whole % 60);
  };
  const onAxis = value => axis === 'time' ? clock(value) : number(value);
  const last = (values, wanted = value => value !== null) => {
    for (let i = (values || []).length - 1; i >= 0; --i) if (wanted(values[i])) return values[i];
    return undefined;
  };

  // An exponential moving average without the pull of its start; gaps stay gaps.
  const smooth = values => {
    if (smoothing === 0) return values;
    let sum = 0, weight = 0;
    return values.map(value => {
      if (value === null) return null;
      sum = smoothing * sum + (1 - smoothing) * value;
      weight = smoothing * weight + (1 - smoothing);
      return sum / weight;
    });
  };

  // Points of a curve. Of very many, the least and the greatest of each stretch, so that no peak is lost.
  const points = (xs, ys) => {
    const all = xs.map((x, i) => ({x, y: ys[i] === null || ys[i] === undefined ? NaN : ys[i]}))
        .filter(point => point.x !== null);
    const stretch = Math.ceil(all.length / 1500);
    if (stretch < 3) return all;
    const kept = [];
    for (let begin = 0; begin < all.length; begin += stretch) {
      let least = -1, greatest = -1, gap = -1;
      for (let i = begin; i < Math.min(all.length, begin + stretch); ++i) {
        if (Number.isNaN(all[i].y)) {
          gap = i;
          continue;
        }
        if (least < 0 || all[i].y < all[least].y) least = i;
        if (greatest < 0 || all[i].y > all[greatest].y) greatest = i;
      }
      for (const i of [...new Set([least, greatest, gap])].sort((a, b) => a - b)) if (i >= 0) kept.push(all[i]);
    }
    return kept;
  };

  const datasets = figure => {
    const made = [];
    runs.forEach((run, index) => {
      const color = palette[index % palette.length];
      for (const [kind, columns] of Object.entries(run.kinds)) {
        const values = columns[figure.name];
        if (!values) continue;
        const train = kind === 'train';
        const data = points(columns[axis], train ? smooth(values) : values);
        made.push({
          label: run.name + (train ? '' : ' (' + kind + ')'),
          data, hidden: hidden[index], borderColor: color, backgroundColor: train ? color : style('--card'),
          borderWidth: train ? 1.8 : 1.3, borderDash: train ? lineOf(index)[1] : [4, 3],
          // A lone point has no line to be seen by.
          pointRadius: train ? (data.length === 1 ? 3 : 0) : 4, pointBorderWidth: 1.8, pointHoverRadius: train ? 4 : 6,
          pointStyle: pointStyles[kind] || 'rect', order: train ? 1 : 0, clip: 8,
        });
        if (!train || run.seams.length === 0) continue;
        const shown = smooth(values);
        made.push({
          label: run.name + ', back at a checkpoint',
          data: run.seams.map(i => ({x: columns[axis][i], y: shown[i] === null ? NaN : shown[i]})),
          hidden: hidden[index], borderColor: color, showLine: false, pointStyle: 'crossRot', pointRadius: 6,
          pointBorderWidth: 2, order: 0, clip: 8,
        });
      }
    });
    return made;
  };

  // Where runs went to another mode: behind the curves, lines from top to bottom with its name, where
  // there is room.
  const switches = {
    id: 'switches',
    beforeDatasetsDraw: view => {
      const {ctx, chartArea: area, scales: {x}} = view;
      if (!x) return;  // there are no curves yet
      ctx.save();
      ctx.font = '11px ' + Chart.defaults.font.family;
      const ends = [];  // of the names that stand there, in rows
      const heights = view.data.datasets.flatMap((_, i) => view.getDatasetMeta(i).data.map(point => point.y));
      const low = heights.filter(y => y > (area.top + area.bottom) / 2).length;
      const isAbove = low > heights.length / 2;  // the names stand where most points do not
      const [first, next] = isAbove ? [area.top + 14, 13] : [area.bottom - 6, -13];
      runs.forEach((run, index) => {
        if (hidden[index]) return;
        const color = palette[index % palette.length];
        for (const [line, mode] of run.switches) {
          const at = x.getPixelForValue(run.kinds.train[axis][line - 1]);  // where the mode before ended
          Object.assign(ctx, {strokeStyle: color, fillStyle: color, lineWidth: 1});
          ctx.setLineDash([2, 3]);
          ctx.beginPath();
          ctx.moveTo(at, area.top);
          ctx.lineTo(at, area.bottom);
          ctx.stroke();
          const width = ctx.measureText(mode).width;
          const row = [0, 1, 2].find(row => (ends[row] || 0) < at);
          if (row === undefined || at + 4 + width > area.right) continue;
          ends[row] = at + 8 + width;
          ctx.fillText(mode, at + 4, first + next * row);
        }
      });
      ctx.restore();
    },
  };

  const scales = chart => {
    const ends = [];
    for (const run of runs.filter((_, index) => !hidden[index])) {
      for (const columns of Object.values(run.kinds)) ends.push(last(columns[axis]) || 0);
    }
    const grid = {color: style('--line'), borderColor: style('--line')};
    return {
      x: {
        type: 'linear', min: 0, max: Math.max(0, ...ends) || 1, grid,
        ticks: {color: style('--faint'), maxTicksLimit: 8, maxRotation: 0, callback: onAxis},
      },
      y: {
        type: chart.logarithmic ? 'logarithmic' : 'linear', grid,
        beginAtZero: !['loss', 'accuracy'].includes(chart.figure.name),
        ticks: {
          color: style('--faint'), maxTicksLimit: 7,
          callback: value => inUnit(chart.figure, value),
        },
      },
    };
  };

  const redraw = () => {
    for (const chart of charts) {
      chart.view.data.datasets = datasets(chart.figure);
      chart.view.options.scales = scales(chart);
      chart.view.update('none');
    }
    for (const button of document.querySelectorAll('#axis button')) {
      button.setAttribute('aria-pressed', button.value === axis);
    }
    document.querySelectorAll('#runs button').forEach((button, i) => button.setAttribute('aria-pressed', !hidden[i]));
  };

  const addChart = figure => {
    const has = kind => runs.some(run => run.kinds[kind] && run.kinds[kind][figure.name]);
    const keys = ['train', 'eval', 'test'].filter(has)
        .map(kind => kind + {train: ' ——', eval: ' △', test: ' ○'}[kind]);
    if (has('train') && runs.some(run => run.seams.length > 0)) keys.push('back at a checkpoint ✕');
    const button = element('button', {textContent: 'log', title: 'logarithmic scale'});
    const canvas = element('canvas', {ariaLabel: figure.title});
    const chart = {figure, logarithmic: false};
    button.setAttribute('aria-pressed', false);
    button.onclick = () => {
      chart.logarithmic = !chart.logarithmic;
      button.setAttribute('aria-pressed', chart.logarithmic);
      redraw();
    };
    document.getElementById('charts').append(element('section', {},
        element('div', {className: 'head'},
            element('h2', {textContent: figure.title},
                element('span', {className: 'key', textContent: keys.join('   ')})), button),
        element('div', {className: 'plot'}, canvas)));
    chart.view = new Chart(canvas, {
      type: 'line',
      data: {datasets: []},
      plugins: [switches],
      options: {
        animation: false, parsing: false, normalized: true, maintainAspectRatio: false, spanGaps: false,
        interaction: {mode: 'nearest', intersect: false, axis: 'xy'},
        plugins: {
          legend: {display: false},
          tooltip: {
            callbacks: {
              title: items => items.length ? axis + ' ' + onAxis(items[0].parsed.x) : '',
              label: item => ' ' + item.dataset.label + ': ' + inUnit(figure, item.parsed.y),
            },
          },
        },
      },
    });
    charts.push(chart);
  };

  // The end may lie between two lines of training.
  const end = (run, figure) => Math.max(...Object.values(run.kinds).map(kind => last(kind[figure]) || 0));
  const columns = [
    ['mode', run => run.mode || '–'],
    ['steps', run => number(end(run, 'step'))],
    ['samples', run => number(end(run, 'samples'))],
    ['time', run => clock(end(run, 'time'))],
    ['train loss', run => four(last((run.kinds.train || {}).loss, () => true))],
    ...['eval', 'test'].filter(kind => runs.some(run => run.kinds[kind])).flatMap(kind => [
      [kind + ' loss', run => {
        const losses = (run.kinds[kind] || {}).loss || [];
        return losses.every(loss => loss === null) ? '–' : four(last(losses, () => true));  // a script need not tell it
      }],
      [kind + ' accuracy', run => {
        const value = last((run.kinds[kind] || {}).accuracy, () => true);
        return typeof value !== 'number' ? '–' : (100 * value).toFixed(2) + ' %';
      }],
    ]),
    ['samples/s', run => number(Math.round(end(run, 'samples') / end(run, 'time')))],
  ];
  const rows = runs.map((run, index) => {
    const swatch = element('span', {className: 'swatch'});
    swatch.style.borderTop = '4px ' + lineOf(index)[0] + ' ' + palette[index % palette.length];
    const button = element('button', {title: 'show or hide'}, swatch, run.name);
    button.onclick = () => { hidden[index] = !hidden[index]; redraw(); };
    const cells = columns.map(([, value]) => element('td', {textContent: value(run)}));
    return element('tr', {}, element('td', {}, button), ...cells);
  });
  const titles = columns.map(([title]) => element('th', {textContent: title}));
  document.getElementById('runs').append(
      element('tr', {}, element('th', {textContent: 'run'}), ...titles), ...rows);
  const title = runs.length === 1 ? runs[0].name : runs.length + ' runs';
  document.getElementById('title').textContent = title;
  document.title = title + ' – Rubato';

  // Runs of older versions tell no updates.
  const isTold = ({name}) => runs.every(run => Object.values(run.kinds).every(columns => columns[name]));
  for (const {name, title} of figures.filter(figure => figure.isAxis && isTold(figure))) {
    const button = element('button', {value: name, textContent: title.toLowerCase()});
    button.onclick = () => { axis = name; redraw(); };
    document.getElementById('axis').append(button);
  }
  document.getElementById('smooth').oninput = event => { smoothing = Number(event.target.value); redraw(); };
  const notes = [];
  for (const figure of figures.filter(figure => !figure.isAxis)) {
    const values = runs.flatMap(run => Object.values(run.kinds).flatMap(kind => kind[figure.name] || []));
    if (!values.some(value => value !== null)) {
      if (values.length > 0) notes.push(figure.title + ': never finite.');
    } else if (figure.name === 'staleness' && values.every(value => value === 0)) {
      notes.push('Staleness: 0 throughout, as in sync every gradient is of the current parameters.');
    } else {
      addChart(figure);
    }
  }
  document.getElementById('notes').textContent = notes.join(' ');
  redraw();
  onColors(redraw);
})();
