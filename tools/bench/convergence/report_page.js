'use strict';
// Draws what `rubato bench convergence` has put into #data:
//   groups   by cluster and computing time: {workers, speeds, scale, modes: [{runs, bands, stalenessCounts,
//            workerSeconds}], leftOut}; a run is {seed, reached, seconds, ...}, a band {x, low, middle, high} over its
//            mode's runs
//   rates    of the search for learning rates: [{workers, speeds, mode, taken, trials}]
// and texts and tables as they are in report.md.
(() => {
  const {data, palette, element, style, number, onColors} = shared;
  const {modes, metric, target, groups, rates} = data;
  const byId = id => document.getElementById(id);
  // A mode is told by its colour, its point and its dash. All points can be hollow.
  const points = ['circle', 'triangle', 'rect', 'rectRot', 'triangle', 'triangle'], turns = [0, 0, 0, 0, 180, 90];
  const signs = ['●', '▲', '■', '◆', '▼', '▶'];
  const dashes = [[], [7, 4], [2, 3], [10, 3, 2, 3], [14, 5], [4, 2]];
  const of = (list, mode) => list[mode % list.length];
  // Of many that lie over one another, fillings would hide the lines.
  const shade = modes.length > 4 ? '12' : '2e';
  const hidden = modes.map(() => false);
  const charts = [];
  let group = groups[0];

  const median = values => {
    const sorted = [...values].sort((a, b) => a - b), half = sorted.length >> 1;
    return sorted.length === 0 ? NaN : sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  };
  const sum = values => values.reduce((all, value) => all + value, 0);
  const runsOf = mode => group && group.modes[mode] ? group.modes[mode].runs : [];
  const stalenessOf = mode => runsOf(mode).map(run => run.staleness).filter(value => value !== null);
  const named = text => text[0].toUpperCase() + text.slice(1);
  const rowLabel = mode => modes[mode].split(/(?<=[,+])/);

  const axisOf = (title, more = {}) => ({
    type: 'linear', title: {display: true, text: title, color: style('--faint')},
    grid: {color: style('--line'), borderColor: style('--line')}, ...more,
    ticks: {
      color: style('--faint'), maxTicksLimit: 7, maxRotation: 0, includeBounds: false, callback: number,
      ...more.ticks,
    },
  });

  // A figure beside each mark of a median.
  const medians = {
    afterDatasetsDraw(chart) {
      const {ctx} = chart;
      chart.data.datasets.forEach((set, i) => {
        if (!set.isMedian || !chart.isDatasetVisible(i)) return;
        ctx.save();
        Object.assign(ctx, {fillStyle: style('--text'), textAlign: 'center', textBaseline: 'bottom'});
        ctx.font = '11px ' + Chart.defaults.font.family;
        chart.getDatasetMeta(i).data.forEach((at, n) => ctx.fillText(number(set.data[n].x), at.x, at.y - 19));
        ctx.restore();
      });
    },
  };

  // The section of a chart; `make` gives {datasets, scales, note, text} for what is chosen.
  const addChart = ({id, title, width, height, label, make, type = 'line', indexAxis = 'x'}) => {
    const canvas = element('canvas');
    canvas.setAttribute('role', 'img');
    const note = element('p', {className: 'note'});
    const plot = element('div', {className: 'plot'}, canvas);
    plot.style.height = height + 'px';
    const section = element('section', {id, className: width || ''}, element('h2', {textContent: title}), note, plot);
    byId('charts').append(section);
    const view = new Chart(canvas, {
      type, data: {datasets: []}, plugins: [medians],
      options: {
        indexAxis,
        animation: false, parsing: false, normalized: true, maintainAspectRatio: false, spanGaps: false,
        interaction: {mode: 'nearest', intersect: false, axis: 'xy'},
        plugins: {legend: {display: false}, tooltip: {callbacks: {title: () => '', label: item => ' ' + label(item)}}},
      },
    });
    charts.push({section, note, canvas, view, make});
  };

  const redraw = () => {
    for (const {section, note, canvas, view, make} of charts) {
      const made = make();
      section.hidden = !made;
      if (!made) continue;
      note.textContent = made.note;
      canvas.setAttribute('aria-label', made.text);
      view.data.datasets = made.datasets;
      view.options.scales = made.scales;
      view.update('none');
    }
    document.querySelectorAll('#legend button').forEach(
        (button, mode) => button.setAttribute('aria-pressed', !hidden[mode]));
    fillTables();
  };

  // Modes as rows, a dot for each run; a seed has the same height in every row.
  const dots = (columns, title, more) => {
    const seeds = Math.max(1, ...modes.map((_, mode) => runsOf(mode).length));
    const datasets = [];
    modes.forEach((name, mode) => {
      const color = of(palette, mode);
      for (const {value, crossed, hollow, drop = 0} of columns) {
        // Chart.js takes the first and the last for the ends.
        const shown = runsOf(mode)
            .map((run, i) => ({run, x: value(run), y: mode + drop + 0.42 * ((i + 0.5) / seeds - 0.5)}))
            .filter(point => point.x !== null).sort((a, b) => a.x - b.x);
        const pointsOf = miss => shown.filter(point => crossed(point.run) === miss);
        const set = {showLine: false, hidden: hidden[mode], mode, borderColor: color, clip: 12};
        datasets.push(
            {...set, data: pointsOf(false), pointStyle: of(points, mode), rotation: of(turns, mode),
             pointRadius: 4.5, pointHoverRadius: 7, pointBorderWidth: 1.5,
             backgroundColor: hollow ? 'transparent' : color + 'b0'},
            {...set, data: pointsOf(true), isMiss: true, pointStyle: 'crossRot',
             pointRadius: 6, pointHoverRadius: 8, pointBorderWidth: 2});
        const middle = median(pointsOf(false).map(point => point.x));
        if (!hollow && !Number.isNaN(middle)) {
          datasets.push({...set, data: [{x: middle, y: mode + drop}], isMedian: true, pointStyle: 'line', rotation: 90,
                         pointRadius: 17, pointHoverRadius: 17, pointBorderWidth: 2.5, borderColor: style('--text')});
        }
      }
    });
    const y = axisOf('', {min: -0.55, max: modes.length - 0.45, reverse: true});
    y.title.display = false;
    y.grid.drawOnChartArea = false;
    y.ticks = {color: style('--text'), autoSkip: false, callback: at => rowLabel(at)};
    y.afterBuildTicks = scale => { scale.ticks = modes.map((_, value) => ({value})); };
    return {datasets, scales: {x: axisOf(title, more), y}};
  };
  const dotLabel = unit => ({dataset, raw}) => modes[dataset.mode] + (dataset.isMedian ? ', median: '
      : ', seed ' + raw.run.seed + (dataset.isMiss ? ', a miss: ' : ': ')) + number(raw.x) + unit;
  const height = 64 + 62 * modes.length;

  addChart({
    id: 'time-to-target', title: 'Time to the target', height, label: dotLabel(' s'),
    make: () => {
      const missed = modes.map((name, mode) => {
        const runs = runsOf(mode), seeds = runs.filter(run => !run.reached).map(run => run.seed);
        return seeds.length === 0 ? '' : name + ' with ' + (seeds.length === runs.length ? 'every seed'
            : (seeds.length > 1 ? 'seeds ' : 'seed ') + seeds.join(', '));
      }).filter(text => text !== '');
      const made = dots([{value: run => run.seconds, crossed: run => !run.reached}], data.seconds + ' of training',
                        {min: 0});
      made.note = 'A point is a run, at one height for one seed; ' +
          'the bar is the median of the runs that reach the target.';
      if (missed.length > 0) made.note += ' ✕ is a miss, drawn at the end of its run: ' + missed.join('; ') + '.';
      const told = modes.map((name, mode) => {
        const reached = runsOf(mode).filter(run => run.reached).map(run => run.seconds);
        return name + ': ' + reached.length + ' of ' + runsOf(mode).length + ' runs reach it' +
            (reached.length > 0 ? ', median ' + number(median(reached)) + ' s' : '');
      });
      made.text = named(data.seconds) + ' to the target. ' + told.join('; ') + '. The tables below have the figures.';
      return made;
    },
  });

  const curves = (axis, title, note) => addChart({
    id: 'curve-' + axis, title, width: 'third', height: 290,
    label: ({dataset, raw}) => dataset.label + ': ' + number(raw.y) + ' at ' + number(raw.x),
    make: () => {
      const datasets = [];
      let end = 0;
      modes.forEach((name, mode) => {
        const band = group && group.modes[mode] && group.modes[mode].bands[axis];
        if (!band || band.x.length === 0) return;
        const color = of(palette, mode), line = values => values.map((y, i) => ({x: band.x[i], y}));
        const set = {hidden: hidden[mode], borderColor: color, pointRadius: 0, pointHoverRadius: 0};
        datasets.push({...set, data: line(band.low), label: name + ', least', borderWidth: 0, order: 2},
                      {...set, data: line(band.high), label: name + ', greatest', borderWidth: 0, order: 2,
                       fill: '-1', backgroundColor: color + shade},
                      {...set, data: line(band.middle), label: name + ', median', isLine: true, borderWidth: 2.2,
                       order: 1, borderDash: of(dashes, mode), pointHoverRadius: 4});
        if (!hidden[mode]) end = Math.max(end, band.x[band.x.length - 1]);
      });
      if (datasets.length === 0) return null;
      datasets.push({data: [{x: 0, y: target}, {x: end, y: target}], label: 'the target', borderColor: style('--text'),
                     borderWidth: 1, borderDash: [3, 3], pointRadius: 0, order: 3});
      const titles = {time: data.seconds + ' of training', samples: 'samples', updates: 'updates of a block'};
      return {
        datasets, note,
        text: 'Curves of ' + metric + ' against ' + titles[axis] +
            ', a band for each mode. The tables below have the figures.',
        scales: {
          x: axisOf(titles[axis], {min: 0, max: end || 1, ticks: {maxTicksLimit: 6}}),
          y: axisOf(metric, /accuracy$/.test(metric) ? {max: 1} : {grace: '3%'}),
        },
      };
    },
  });
  curves('time', named(metric) + ' against time',
         'What counts in the end: speed of the cluster and worth of an update together.');
  curves('samples', named(metric) + ' against samples',
         'What a sample is worth, however long it takes: statistical efficiency.');
  curves('updates', named(metric) + ' against updates',
         'What an update is worth: in sync of a whole batch, on arrival of a contribution.');

  addChart({
    id: 'final', title: named(metric) + ' at the end', width: 'third', height, label: dotLabel(''),
    make: () => {
      const made = dots([{value: run => run.last, crossed: () => false},
                         {value: run => run.test, crossed: () => false, hollow: true, drop: 0.02}],
                        metric, {grace: '8%'});
      const missing = modes
          .map((name, mode) => [name, runsOf(mode).filter(run => run.last === null).length])
          .filter(([, n]) => n > 0);
      made.note = data.finalNote +
          missing.map(([name, n]) => ' Of ' + name + ' ' + n + (n > 1 ? ' runs diverged.' : ' run diverged.')).join('');
      made.text = metric + ' at the end. ' + modes.map((name, mode) => name + ': median ' +
          number(median(runsOf(mode).map(run => run.last).filter(value => value !== null)))).join('; ') + '.';
      return made;
    },
  });
  addChart({
    id: 'staleness', title: 'Staleness', width: 'third', height, label: dotLabel(''),
    make: () => {
      const made = dots([{value: run => run.staleness, crossed: () => false}], 'mean staleness of a run, updates',
                        {min: 0});
      made.note = 'How many updates of others a gradient comes too late, on average over a run. ' + data.boundNote;
      const mean = mode => number(median(stalenessOf(mode)));
      made.text = 'Mean staleness. ' + modes.map((name, mode) => name + ': median ' + mean(mode)).join('; ') + '.';
      return made;
    },
  });
  addChart({
    id: 'staleness-counts', title: 'Updates by staleness', width: 'third', height: Math.max(height, 250),
    label: ({dataset, raw}) => (dataset.label || modes[dataset.mode]) + ': ' + number(raw.y) +
        ' % at staleness ' + raw.staleness,
    make: () => {
      const countsOf = mode => group && group.modes[mode] ? group.modes[mode].stalenessCounts : [];
      const shown = modes.map((_, mode) => ({mode, counts: countsOf(mode)})).filter(({counts}) => counts.length > 0);
      if (shown.length === 0) return null;
      const most = Math.max(...shown.map(({counts}) => counts.length));
      const datasets = shown.map(({mode, counts}) => {
        const all = sum(counts);
        return {
          mode, hidden: hidden[mode], borderColor: of(palette, mode), backgroundColor: of(palette, mode) + shade,
          fill: 'origin', stepped: 'middle', borderWidth: 2, borderDash: of(dashes, mode), pointRadius: 0,
          pointHoverRadius: 4,
          data: Array.from({length: most + 2}, (_, i) =>
              ({x: i - 1, y: 100 * (counts[i - 1] || 0) / all, staleness: i - 1})),
        };
      });
      // Workers whose times are exponential, of one mean: 1/N (1 - 1/N)^j.
      datasets.push({
        label: 'the law', borderColor: style('--text'), borderWidth: 1, borderDash: [3, 3], pointRadius: 0,
        pointHoverRadius: 4, order: 3,
        data: Array.from({length: Math.min(most, data.mostStaleness)}, (_, i) =>
            ({x: i, y: 100 / group.workers * (1 - 1 / group.workers) ** i, staleness: i})),
      });
      const mean = ({mode}) => median(stalenessOf(mode));
      return {
        datasets,
        note: 'Of all runs of a mode, on arrival. Dotted: the law for async with ' + group.workers +
            ' workers alike whose times are exponential, mean ' + (group.workers - 1) + '.' +
            (most > data.mostStaleness ? ' The last one, ' + data.mostStaleness + ', is of that and more.' : '') +
            (data.boundNote ? ' ' + data.boundNote : ''),
        text: 'Updates by staleness. ' +
            shown.map(one => modes[one.mode] + ': mean ' + number(mean(one))).join('; ') + '.',
        scales: {
          x: axisOf('staleness of an update', {min: -0.5, max: most - 0.5, ticks: {precision: 0}}),
          y: axisOf('% of the updates', {min: 0}),
        },
      };
    },
  });
  // What workers' time went into, told by depth of the modes' colours. Of very many workers the mean.
  const parts = [['computing', 'cc'], ['sending', '77'], ['waiting', '22']];
  const bars = one => {
    const every = sum(one.modes.map(({workerSeconds}) => workerSeconds.length)) <= 48;
    return one.modes.flatMap(({workerSeconds}, mode) => {
      if (every || workerSeconds.length === 0) {
        return workerSeconds.map((seconds, worker) => ({mode, seconds, name: String(worker)}));
      }
      const mean = part => sum(workerSeconds.map(seconds => seconds[part])) / workerSeconds.length;
      return [{mode, name: 'mean', seconds: parts.map((_, part) => mean(part))}];
    });
  };
  const highest = 90 + 17 * Math.max(0, ...groups.map(one => bars(one).length));
  addChart({
    id: 'workers', title: 'What workers’ time went into', type: 'bar', indexAxis: 'y',
    width: rates.length > 0 ? 'half' : '', height: highest,
    label: ({dataset, raw}) => modes[raw.mode] + ', worker ' + raw.name + ', ' + dataset.label + ': ' +
        number(raw.x) + ' s',
    make: () => {
      const rows = group ? bars(group) : [];
      if (rows.length === 0) return null;
      const datasets = parts.map(([label, depth], part) => ({
        label, stack: 'time', barPercentage: 0.85, categoryPercentage: 1, borderWidth: 1,
        borderColor: rows.map(({mode}) => of(palette, mode)),
        backgroundColor: rows.map(({mode}) => of(palette, mode) + depth),
        data: rows.map(({mode, name, seconds}, y) => ({x: hidden[mode] ? null : seconds[part], y, mode, name})),
      }));
      const isFirst = at => at === 0 || rows[at - 1].mode !== rows[at].mode;
      const y = axisOf('', {min: -0.5, max: rows.length - 0.5, reverse: true, stacked: true, offset: false});
      y.title.display = false;
      y.grid.drawOnChartArea = false;
      // A mode's name stands in parts beside its first workers, if it has as many.
      const nameAt = at => {
        const own = rows.filter(row => row.mode === rows[at].mode), parts = rowLabel(rows[at].mode);
        return (parts.length <= own.length ? parts : [modes[rows[at].mode]])[own.indexOf(rows[at])] || '';
      };
      y.ticks = {color: style('--text'), autoSkip: false, callback: at => nameAt(at) + '  ' + rows[at].name};
      y.afterBuildTicks = scale => { scale.ticks = rows.map((_, value) => ({value})); };
      const shares = mode => {
        const own = rows.filter(row => row.mode === mode);
        const spent = parts.map((_, part) => sum(own.map(({seconds}) => seconds[part])));
        return parts.map(([label], part) => Math.round(100 * spent[part] / sum(spent)) + ' % ' + label)
            .filter((_, part) => spent[part] > 0).join(', ');
      };
      return {
        // Real workers do not tell what they send.
        datasets, note: 'Mean over the runs. Dark: computing; ' + (sum(rows.map(({seconds}) => seconds[1])) > 0
            ? 'middle: its machine’s card sends; light: it waits.' : 'light: it sends and waits.'),
        text: 'What workers’ time went into. ' + rows.filter((_, at) => isFirst(at))
            .map(({mode}) => modes[mode] + ': ' + shares(mode)).join('; ') + '.',
        scales: {x: axisOf(data.seconds, {min: 0, stacked: true}), y},
      };
    },
  });
  addChart({
    id: 'rates', title: 'Sensitivity to the learning rate', width: 'half', height: Math.max(highest, 250),
    label: ({dataset, raw}) => modes[dataset.mode] + ' at ' + raw.rate + ': ' + number(raw.y) + ' s, ' +
        (raw.trials.runs - raw.trials.misses) + ' of ' + raw.trials.runs + ' reach the target' +
        (raw.taken ? ', taken' : ''),
    make: () => {
      const found = rates.filter(({workers, speeds}) => group && workers === group.workers && speeds === group.speeds);
      if (found.length === 0) return null;
      const datasets = found.map(({mode, taken, trials}) => {
        const line = trials.map((one, i) => {
          const rate = data.learningRates[i];
          return {x: Number(rate), y: one.seconds, rate, trials: one, taken: i === taken};
        }).sort((a, b) => a.x - b.x).filter(point => point.y > 0);
        return {
          mode, data: line, hidden: hidden[mode], borderColor: of(palette, mode), borderWidth: 2,
          borderDash: of(dashes, mode), rotation: of(turns, mode),
          backgroundColor: line.map(point => point.taken ? of(palette, mode) : style('--card')),
          pointStyle: line.map(point => point.trials.misses > 0 ? 'crossRot' : of(points, mode)),
          pointRadius: line.map(point => point.taken ? 8 : 5), pointHoverRadius: 9, pointBorderWidth: 2,
        };
      });
      const x = axisOf('learning rate', {
        type: 'logarithmic', ticks: {autoSkip: false, callback: value => number(value)},
      });
      x.afterBuildTicks = scale => { scale.ticks = data.learningRates.map(rate => ({value: Number(rate)})); };
      const values = data.learningRates.map(Number);
      const atTheEdge = found.filter(({taken}) => [Math.min(...values), Math.max(...values)].includes(values[taken]))
          .map(({mode}) => modes[mode]);
      Object.assign(x, {min: Math.min(...values) / 1.25, max: Math.max(...values) * 1.25});
      return {
        datasets, scales: {x, y: axisOf(data.seconds + ' to the target', {min: 0})},
        note: 'Mean of the trials of each rate, with seeds of their own; large and filled: the one that was taken; ' +
            '✕: some trial missed the target.' +
            (atTheEdge.length > 0 ? ' A rate beyond the list may be better for ' + atTheEdge.join(', ') + '.' : ''),
        text: 'Seconds to the target by learning rate. ' +
            found.map(({mode, taken}) => modes[mode] + ' took ' + data.learningRates[taken]).join('; ') + '.',
      };
    },
  });

  const table = (titles, rows) => [
    element('tr', {}, ...titles.map(text => element('th', {textContent: text, scope: 'col'}))),
    ...rows.map(row => element('tr', {}, ...row.map(text => element('td', {textContent: text})))),
  ];
  const fillTables = () => {
    byId('runs').replaceChildren(...table(
        ['mode', 'seed', 'reaches it', 'seconds', 'samples', metric + ' at the end', 'of the test split', 'staleness'],
        modes.flatMap((name, mode) => runsOf(mode).map(run => [
          name, run.seed, run.reached ? 'yes' : 'no, ends at', number(run.seconds), number(run.samples),
          number(run.last), number(run.test), number(run.staleness)]))));
    byId('left-out').textContent = group && group.leftOut.length > 0 ? 'Left out: ' + group.leftOut.join('; ') : '';
  };

  byId('title').textContent = document.title = data.title;
  byId('verdicts').append(...data.verdicts.map(text => element('li', {textContent: text})));
  byId('conditions').textContent = data.conditions;
  byId('certainty').textContent = data.certainty;
  byId('modes').append(...table(data.table.titles, data.table.rows));
  byId('table-note').textContent = data.tableNote;
  byId('how').textContent = data.how;
  byId('command').textContent = data.command;
  modes.forEach((name, mode) => {
    const swatch = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    swatch.setAttribute('width', 34);
    swatch.setAttribute('height', 10);
    const line = document.createElementNS('http://www.w3.org/2000/svg', 'line');
    const drawn = {
      x1: 0, x2: 34, y1: 5, y2: 5, stroke: of(palette, mode), 'stroke-width': 3,
      'stroke-dasharray': of(dashes, mode).join(' '),
    };
    for (const [key, value] of Object.entries(drawn)) line.setAttribute(key, value);
    swatch.append(line);
    const sign = element('span', {textContent: of(signs, mode), ariaHidden: 'true'});
    sign.style.color = of(palette, mode);
    const button = element('button', {title: 'show or hide'}, swatch, sign, name);
    button.onclick = () => { hidden[mode] = !hidden[mode]; redraw(); };
    byId('legend').append(button);
  });

  // The first cluster and computing time, and a way to the others where there are some.
  const {workers, speeds, scale} = groups[0] || {}, choice = {workers, speeds, scale};
  const choose = (key, title, text) => {
    const values = [...new Set(groups.map(one => one[key]))];
    if (values.length < 2) return;
    const options = values.map(value => element('option', {value, textContent: text(value)}));
    const select = element('select', {id: 'choose-' + key}, ...options);
    select.onchange = () => {
      choice[key] = Number(select.value);
      group = groups.find(one => ['workers', 'speeds', 'scale'].every(which => one[which] === choice[which]));
      redraw();
    };
    byId('choices').append(element('label', {}, title, select));
  };
  choose('workers', 'workers', value => value);
  choose('speeds', 'speeds', value => data.speeds[value]);
  choose('scale', 'computing time', value => value === 1 ? 'as measured or given' : '× ' + value);

  redraw();
  onColors(redraw);
  // #only=ID shows one chart, for a picture of it.
  const only = /^#only=([\w-]+)$/.exec(location.hash);
  if (only && byId(only[1])) {
    document.body.classList.add('alone');
    byId(only[1]).className = '';
    document.body.replaceChildren(byId('legend'), element('main', {}, byId(only[1])));
  }
})();
