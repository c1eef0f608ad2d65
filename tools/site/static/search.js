// Searches the sections of all documents. The index is a script, so that it can be loaded without a server too.
"use strict";
const root = document.body.dataset.root;
const query = document.getElementById("query");
const results = document.getElementById("results");
const most = 12; // results that are shown

// On wide screens the contents are always open.
const menu = document.querySelector("nav > .menu");
const wide = matchMedia("(min-width: 55.01rem)");
const open = () => { menu.open = wide.matches; };
wide.addEventListener("change", open);
open();

let index;
function load() {
  index ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = root + "search-index.js";
    script.onload = () => resolve(window.searchIndex);
    script.onerror = reject;
    document.head.append(script);
  });
  return index;
}

// score is higher for words in titles, and 0 if a word is missing.
function score(section, words) {
  let sum = 0;
  for (const word of words) {
    const title = section.title.toLowerCase(), page = section.page.toLowerCase();
    if (title === word) sum += 40;
    else if (title.includes(word)) sum += 20;
    else if (page.includes(word)) sum += 10;
    else if (section.text.toLowerCase().includes(word)) sum += 1;
    else return 0;
  }
  return sum;
}

function snippet(section, word) {
  const at = Math.max(0, section.text.toLowerCase().indexOf(word) - 40);
  return section.text.slice(at, at + 120);
}

async function search() {
  const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
  results.replaceChildren();
  results.hidden = words.length === 0;
  if (results.hidden) return;
  const found = (await load()).map((section) => ({ section, rank: score(section, words) }))
    .filter((hit) => hit.rank > 0).sort((a, b) => b.rank - a.rank).slice(0, most);
  for (const { section } of found) {
    const item = document.createElement("li"), link = document.createElement("a"), about = document.createElement("small");
    link.href = root + section.url;
    link.textContent = section.title === section.page ? section.page : `${section.page}: ${section.title}`;
    about.textContent = snippet(section, words[0]);
    link.append(about);
    item.append(link);
    results.append(item);
  }
  if (found.length === 0) {
    const item = document.createElement("li"), none = document.createElement("span");
    none.textContent = "Nothing found";
    item.append(none);
    results.append(item);
  }
}

query.addEventListener("input", search);
query.addEventListener("focus", load, { once: true });
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== query) {
    event.preventDefault();
    query.focus();
  } else if (event.key === "Escape") {
    results.hidden = true;
  } else if (event.key === "Enter" && document.activeElement === query) {
    results.querySelector("a")?.click();
  }
});
document.addEventListener("click", (event) => {
  if (!event.target.closest(".search")) results.hidden = true;
});
// A link to a search: index.html?q=words.
const asked = new URLSearchParams(location.search).get("q");
if (asked) {
  query.value = asked;
  search();
}
