// Write tests/data/templates/golden-hf-jinja.json: what @huggingface/jinja makes of every template with every
// conversation; "same" where it is what Jinja2 made (golden-jinja2.json). See make_template_conversations.py.
import { createRequire } from "node:module";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";

const require = createRequire(import.meta.url);
const { Template } = require("@huggingface/jinja");
const folder = new URL("../tests/data/templates/", import.meta.url);
const { clock, conversations } = JSON.parse(readFileSync(new URL("conversations.json", folder)));

const RealDate = Date;
globalThis.Date = class extends RealDate {
  constructor(...args) {
    super(...(args.length ? args : [clock]));
  }
};

const jinja2 = JSON.parse(readFileSync(new URL("golden-jinja2.json", folder)));
const results = {};
for (const file of readdirSync(folder).filter((f) => f.endsWith(".jinja")).sort()) {
  results[file] = {};
  for (const [name, variables] of Object.entries(conversations)) {
    try {
      const text = new Template(readFileSync(new URL(file, folder), "utf8")).render(variables);
      results[file][name] = text === jinja2[file][name].text ? "same" : { text };
    } catch (error) {
      results[file][name] = { error: String(error.message) };
    }
  }
}
writeFileSync(new URL("golden-hf-jinja.json", folder), JSON.stringify(results, null, 1) + "\n");
