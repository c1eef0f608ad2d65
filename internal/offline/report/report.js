// Without this script, the page shows all rows and no filter.
const form = document.getElementById("filter");
const rows = [...document.querySelectorAll("tbody > tr")].map(row => ({
  row,
  text: row.textContent.toLowerCase(),
  verdict: row.dataset.verdict.split("\n"),
  policy: row.dataset.policy.split("\n"),
  kind: row.dataset.kind.split("\n"),
}));
const selects = ["verdict", "policy", "kind"].map(name => form.elements[name]);
for (const select of selects) {
  const values = new Set(rows.flatMap(row => row[select.name]));
  values.delete("");
  for (const value of [...values].sort()) {
    select.add(new Option(value, value));
  }
}
function filter() {
  const words = form.elements.text.value.toLowerCase().split(/\s+/);
  let shown = 0;
  for (const row of rows) {
    const fits = words.every(word => row.text.includes(word)) && selects.every(s => s.value === "" || row[s.name].includes(s.value));
    row.row.hidden = !fits;
    shown += fits;
  }
  form.elements.shown.value = `${shown} of ${rows.length} shown`;
}
form.addEventListener("input", filter);
form.addEventListener("submit", event => event.preventDefault());
form.hidden = false;
filter();
