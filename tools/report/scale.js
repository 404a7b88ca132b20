// SPDX-License-Identifier: Apache-2.0
// From values to pixels: linear, logarithmic and by rank. A scale is a function with `ticks`, the
// values that its axis names.

function linear_scale([low, high], [from, to], max_ticks) {
  if (!(high > low)) high = low + 1;
  const scale = (value) => from + ((value - low) / (high - low)) * (to - from);
  const step = nice_step((high - low) / Math.max(1, max_ticks));
  scale.ticks = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high * (1 + 1e-9); ++at) {
    scale.ticks.push(Number((at * step).toPrecision(12)));
  }
  return scale;
}

function log_scale([low, high], [from, to]) {
  if (!(high > low)) [low, high] = [low / 2, high * 2];
  const decades = Math.log10(high / low);
  const scale = (value) => from + (Math.log10(value / low) / decades) * (to - from);
  const steps = decades < 3 ? [1, 2, 5] : [1];
  scale.ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power) {
    for (const step of steps) {
      const value = Number((step * 10 ** power).toPrecision(12));
      if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) scale.ticks.push(value);
    }
  }
  if (scale.ticks.length < 2) scale.ticks = [low, high];
  return scale;
}

/** For names: the values are 0, 1, 2, …, each in the middle of its share. */
function rank_scale(count, [from, to]) {
  const scale = (value) => from + ((value + 0.5) / count) * (to - from);
  scale.ticks = [...Array(count).keys()];
  return scale;
}

/** 1, 2 or 5 times a power of ten, not below `step`. */
function nice_step(step) {
  const power = 10 ** Math.floor(Math.log10(step));
  for (const factor of [1, 2, 5]) {
    if (step <= factor * power * (1 + 1e-9)) return factor * power;
  }
  return 10 * power;
}

/** The end of an axis that begins at 0: room for `highest`, at a tick. */
function nice_end(highest, max_ticks) {
  if (!(highest > 0)) return 1;
  const step = nice_step(highest / max_ticks);
  return Math.ceil(highest / step - 1e-9) * step;
}

/** Without spreading arrays into arguments, of which there may be too many. */
function highest_of(values, start = -Infinity) {
  return values.reduce((most, value) => (value > most ? value : most), start);
}

function lowest_of(values, start = Infinity) {
  return values.reduce((least, value) => (value < least ? value : least), start);
}
