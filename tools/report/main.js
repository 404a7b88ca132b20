// SPDX-License-Identifier: Apache-2.0
// Reads the results that are in the page and puts the parts together. A part that fails says so in its
// place and leaves the others alone.

const commands = { replay: replay_sections, plan: plan_sections, compare: compare_sections };

/** Null where they cannot be read; then the page says why. */
function read_results() {
  try {
    return record_of(JSON.parse(document.getElementById("results").textContent));
  } catch (error) {
    show_notice(`The results in this page are no JSON: ${error.message}`);
    return null;
  }
}

function show_notice(text) {
  document.getElementById("content").append(el("p.notice", { role: "alert" }, text));
}

/** One line below the title: which command, on which trace. */
function about_text(results) {
  const trace = record_of(results.trace);
  const files = Array.isArray(trace.files) ? trace.files.join(", ") : null;
  const made_by = ["pando", results.version, results.command].filter(Boolean).join(" ");
  const settings = record_of(results.settings);
  return [made_by, files, trace.format, settings.policy, settings.model ?? results.model]
    .filter(Boolean).join(" · ");
}

function show_page(results) {
  const content = document.getElementById("content");
  document.getElementById("about").append(about_text(results));
  let sections = [];
  try {
    sections = (commands[results.command] ?? ((all) => [figures_section(all)]))(results);
  } catch (error) {
    show_notice(`The charts could not be drawn: ${error.message}`);
    console.error(error);
    sections = [figures_section(results)];
  }
  sections = sections.filter(Boolean);
  content.append(...sections);
  if (sections.length === 0) show_notice("There are no results in this page.");
  document.getElementById("contents").append(...(sections.length > 1 ? sections : []).map((part) =>
    el("a", { href: "#" + part.id }, part.firstChild.textContent)));
}

/** The JSON as it was given. */
function save_results() {
  const blob = new Blob([document.getElementById("results").textContent], { type: "application/json" });
  const link = el("a", { href: URL.createObjectURL(blob), download: "results.json" });
  link.click();
  URL.revokeObjectURL(link.href);
}

const results = read_results();
if (results !== null) show_page(results);
document.getElementById("save").addEventListener("click", save_results);
