// Script of vcdeploy.analysis.page: shows the description of the hovered or focused symbol; arrow keys move the focus.
"use strict";
const cells = [...document.querySelectorAll(".cell")];
const readout = document.getElementById("readout");

function show(cell) {
  readout.textContent = cell.getAttribute("aria-label");
}

function choose(cell) {
  const strip = cell.closest(".strip");
  for (const each of strip.querySelectorAll('.cell[tabindex="0"]')) each.tabIndex = -1;
  for (const each of document.querySelectorAll('.cell[aria-selected="true"]')) each.setAttribute("aria-selected", "false");
  cell.tabIndex = 0;
  cell.setAttribute("aria-selected", "true");
  show(cell);
}

// The cell nearest in x on the next line, above (-1) or below (1).
function beyond(cell, way) {
  const from = cell.getBoundingClientRect(), x = from.left + from.width / 2;
  let best = null, line = 0;
  for (let at = cells.indexOf(cell) + way; at >= 0 && at < cells.length; at += way) {
    const box = cells[at].getBoundingClientRect();
    if (Math.abs(box.top - from.top) < from.height / 2) continue;
    if (best && Math.abs(box.top - line) >= from.height / 2) break;
    line = box.top;
    const off = Math.abs(box.left + box.width / 2 - x);
    if (!best || off < best.off) best = { off, cell: cells[at] };
  }
  return best && best.cell;
}

// Scrolling also sends mousemove events, with the mouse at rest: ignore those.
let rest = [-1, -1];
document.addEventListener("mousemove", (event) => {
  const cell = event.target.closest(".cell");
  const moved = event.clientX !== rest[0] || event.clientY !== rest[1];
  rest = [event.clientX, event.clientY];
  if (cell && moved) show(cell);
});
document.addEventListener("focusin", (event) => {
  if (event.target.classList.contains("cell")) choose(event.target);
});
document.addEventListener("click", (event) => {
  const cell = event.target.closest(".cell");
  if (cell) cell.focus();
});
document.addEventListener("keydown", (event) => {
  const cell = event.target;
  if (!cell.classList.contains("cell") || event.ctrlKey || event.altKey || event.metaKey) return;
  const own = [...cell.closest(".strip").querySelectorAll(".cell")], at = cells.indexOf(cell);
  const next = {
    ArrowRight: () => cells[at + 1], ArrowLeft: () => cells[at - 1],
    ArrowDown: () => beyond(cell, 1), ArrowUp: () => beyond(cell, -1),
    Home: () => own[0], End: () => own[own.length - 1],
  }[event.key];
  if (!next) return;
  event.preventDefault();
  const to = next();
  if (to) to.focus();
});
