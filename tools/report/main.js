// SPDX-License-Identifier: Apache-2.0
// Reads the results that are in the page and puts the parts together. A part that fails says so in its
// place and leaves the others alone.

const commands = { replay: replay_sections, plan: plan_sections, compare: compare_sections };

function read_results() {
  try {
    const value = JSON.parse(document.getElementById("results").textContent);
    return is_record(value) ? value : {};
  } catch (error) {
    return { unreadable: String(error.message) };
  }
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
  if (results.unreadable) {
    content.append(el("p.notice", { role: "alert" }, `The results in this page are no JSON: ${results.unreadable}`));
    return;
  }
  document.getElementById("about").append(about_text(results));
  let sections = [];
  try {
    sections = (commands[results.command] ?? ((all) => [figures_section(all)]))(results);
  } catch (error) {
    content.append(el("p.notice", { role: "alert" }, `The charts could not be drawn: ${error.message}`));
    console.error(error);
    sections = [figures_section(results)];
  }
  sections = sections.filter(Boolean);
  content.append(...sections);
  if (sections.length === 0) content.append(el("p.notice", null, "There are no results in this page."));
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

show_page(read_results());
document.getElementById("save").addEventListener("click", save_results);
