// The endpoints, read from the service's own OpenAPI document.

import { openapi } from "/page/api.js";

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function typeOf(schema) {
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.anyOf) return [...new Set(schema.anyOf.map(typeOf))].filter((each) => each !== "null").join(" | ");
  if (schema.type === "array") return `[${typeOf(schema.items ?? {})}]`;
  return schema.format === "binary" ? "file" : schema.type ?? "any";
}

function meaning(schema) {
  const parts = [schema.description ?? schema.anyOf?.find((each) => each.description)?.description ?? ""];
  if (schema.default !== undefined && schema.default !== null) parts.push(`Default: ${JSON.stringify(schema.default)}.`);
  return parts.filter(Boolean).join(" ").replaceAll("`", "");
}

function table(headings, rows) {
  return element("table", {}, element("thead", {}, element("tr", {},
    ...headings.map((text) => element("th", { textContent: text })))),
  element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((text) => element("td", { textContent: text }))))));
}

function operation(path, method, described) {
  const parts = [element("summary", {},
    element("span", { className: "method", textContent: method.toUpperCase() }),
    element("span", { className: "path", textContent: path }),
    element("span", { className: "fine", textContent: (described.description ?? "").replaceAll("`", "") }))];
  if (described.parameters?.length) {
    parts.push(table(["parameter", "type", "meaning"], described.parameters.map((each) =>
      [each.name, typeOf(each.schema), each.description ?? meaning(each.schema)])));
  }
  for (const [kind, { schema }] of Object.entries(described.requestBody?.content ?? {})) {
    parts.push(table([kind, "type", "meaning"], Object.entries(schema.properties ?? {}).map(([name, each]) => [name, typeOf(each), meaning(each)])));
  }
  const refusals = Object.entries(described.responses).filter(([status]) => status !== "200");
  parts.push(table(["refusal", "meaning"], refusals.map(([status, each]) => [status, each.description])));
  return element("details", {}, ...parts);
}

try {
  const described = await openapi();
  const operations = Object.entries(described.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, each]) => operation(path, method, each)));
  document.getElementById("operations").replaceChildren(...operations);
} catch (error) {
  document.getElementById("message").textContent = error.status === 401
    ? "A token is needed: enter it on the search page, then come back." : error.message;
}
