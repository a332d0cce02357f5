// How far apart two colours look, to whom. Distances in OKLab (Ottosson 2020); colour blindness after Machado, Oliveira and
// Fernandes 2009, severity 1, on linear RGB.

import { parseColour } from "../../frontend/js/colour.js";

/** @type {Record<string, number[][]>} */
export const BLINDNESS = {
  protanopia: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  deuteranopia: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  tritanopia: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};

const LMS = [
  [0.4122214708, 0.5363325363, 0.0514459929],
  [0.2119034982, 0.6806995451, 0.1073969566],
  [0.0883024619, 0.2817188376, 0.6299787005],
];
const LAB = [
  [0.2104542553, 0.793617785, -0.0040720468],
  [1.9779984951, -2.428592205, 0.4505937099],
  [0.0259040371, 0.7827717662, -0.808675766],
];

/** @param {number[][]} matrix @param {number[]} vector */
const times = (matrix, vector) => matrix.map((row) => row.reduce((sum, m, i) => sum + m * vector[i], 0));

/** @param {string} sight `normal`, or a kind of blindness @param {string} colour */
function seen(sight, colour) {
  const linear = parseColour(colour).map((part) => {
    const c = part / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  const light = sight === "normal" ? linear : times(BLINDNESS[sight], linear).map((part) => Math.min(1, Math.max(0, part)));
  return times(LAB, times(LMS, light).map(Math.cbrt));
}

/** @param {string} sight @param {string} a @param {string} b @returns {number} 0: the same; black and white are 1 apart */
export function sees(sight, a, b) {
  const [one, other] = [seen(sight, a), seen(sight, b)];
  return Math.hypot(...one.map((part, i) => part - other[i]));
}
